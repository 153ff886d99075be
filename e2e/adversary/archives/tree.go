//go:build linux

package archives

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// tree writes down everything that can be known of a tree except access times. Of
// a directory in own it has only that it exists, and its contents unless own says
// true.
func tree(root string, own map[string]bool) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var at unix.Stat_t
		if err := unix.Lstat(path, &at); err != nil {
			return err
		}
		if whole, ok := own[path]; ok {
			fmt.Fprintf(&b, "%q %o is there\n", path, at.Mode&unix.S_IFMT)
			if whole {
				return fs.SkipDir
			}
			return nil
		}
		fmt.Fprintf(&b, "%q inode %d mode %o owner %d:%d links %d size %d modified %d.%09d changed %d.%09d", path, at.Ino, at.Mode, at.Uid, at.Gid, at.Nlink, at.Size,
			at.Mtim.Sec, at.Mtim.Nsec, at.Ctim.Sec, at.Ctim.Nsec)
		names, err := attributes(path)
		if err != nil {
			return err
		}
		for _, name := range names {
			value := make([]byte, 64<<10)
			n, err := unix.Lgetxattr(path, name, value)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %s=%x", name, value[:n])
		}
		switch {
		case d.Type().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(raw))
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", to)
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String(), err
}

// attributes are the names of what is attached to a file.
func attributes(path string) ([]string, error) {
	raw := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, raw)
	if err != nil || n == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(raw[:n]), "\x00"), "\x00"), nil
}

// inspect looks whether what was restored is within limits and does nothing: no
// device, nothing that speaks to the kernel, nothing of the canary.
func (w *World) inspect(dir string, l layer.Limits) error {
	entries, space := 0, int64(0)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		var at unix.Stat_t
		if err := unix.Lstat(path, &at); err != nil {
			return err
		}
		space += at.Blocks * 512 // as stat counts
		switch kind := at.Mode & unix.S_IFMT; {
		case kind == unix.S_IFCHR && at.Rdev != 0, kind == unix.S_IFBLK, kind == unix.S_IFSOCK:
			return fmt.Errorf("%q is of mode %o", path, at.Mode)
		case d.Type().IsRegular(), d.IsDir():
			return errors.Join(harmless(path), w.noSecret(path, d))
		}
		return nil
	})
	if most := l.Bytes + int64(entries)*16<<10; space > most {
		err = errors.Join(err, fmt.Errorf("it takes %d bytes of the disk, and may %d", space, most))
	}
	if entries > l.Entries+1 {
		err = errors.Join(err, fmt.Errorf("there are %d entries", entries))
	}
	return err
}

// harmless looks at what is attached to a file, and at its flags.
func harmless(path string) error {
	names, err := attributes(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "user.") && name != "trusted.overlay.opaque" {
			return fmt.Errorf("%q has the attribute %s", path, name)
		}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	const immutable, appendOnly = 0x10, 0x20
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&(immutable|appendOnly) != 0 {
		return fmt.Errorf("%q has the flags %x", path, flags)
	}
	return nil
}

func (w *World) noSecret(path string, d fs.DirEntry) error {
	if !d.Type().IsRegular() {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err == nil && bytes.Contains(raw, []byte(w.Secret)) {
		err = fmt.Errorf("%q has the secret of the canary in it", path)
	}
	return err
}
