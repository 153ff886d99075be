//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// Beside its volume a sandbox can write to two directories of this machine: the
// runner's and the slot. They are in memory, which counts as the sandbox's own,
// and small, so that nothing inside can fill the disk of the machine.
const (
	runRoom   = 256 << 20
	slotRoom  = 1 << 20
	mostNodes = 16384
)

// bound gives a box that was just made its room.
func (b box) bound(secret string) error {
	for dir, size := range map[string]int64{b.run(): runRoom, b.slot(): slotRoom} {
		options := fmt.Sprintf("mode=700,size=%d,nr_inodes=%d", size, mostNodes)
		if err := mountAt("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return err
		}
	}
	// What is mounted in the slot later is seen inside.
	if err := unix.Mount("", b.slot(), "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the slot: %w", err)
	}
	for _, dir := range []string{b.state(), filepath.Join(b.slot(), "ws"), filepath.Join(b.slot(), "home"), filepath.Join(b.slot(), "tmp")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.run(), "secret"), []byte(secret), 0o600)
}

// copyState copies what a runner has on disk, whole or not at all. What is there
// already is whole. Links are copied and not followed, and what could not have
// been in so little room is refused: it is the work of whoever was inside.
func copyState(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	tmp := to + ".new"
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
		return err
	}
	left := int64(runRoom)
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(tmp, rel), &left)
	})
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("copy the runner's state: %w", errors.Join(err, os.RemoveAll(tmp)))
	}
	return nil
}

// copyEntry copies one file, directory, link or pipe, and leaves out the rest.
func copyEntry(from, to string, left *int64) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch info.Mode().Type() { //nolint:exhaustive // the rest is left out
	case fs.ModeDir:
		err = os.Mkdir(to, 0o700)
	case fs.ModeNamedPipe:
		err = unix.Mkfifo(to, 0o600)
	case fs.ModeSymlink:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case 0:
		err = copyBytes(from, to, left)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(to, int(s.Uid), int(s.Gid)); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(to, info.Mode().Perm()), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

func copyBytes(from, to string, left *int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = errors.New("it is more than there was room for")
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
