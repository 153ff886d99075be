//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// copySparse copies a file without its holes, whole or not at all.
func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to+unnamed, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = out.Truncate(info.Size())
	if err == nil {
		err = eachData(in, info.Size(), func(_, start, end int64) error {
			_, err := io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start))
			return err
		})
	}
	if err == nil {
		err = out.Sync() // what is synced inside later needs a file that is synced
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", filepath.Base(from), errors.Join(err, os.Remove(to+unnamed)))
	}
	return os.Rename(to+unnamed, to)
}

// eachData calls do for every hole of a sparse file and the data after it: [hole, start)
// was never written, and [start, end) is data, which may be empty.
func eachData(f *os.File, size int64, do func(hole, start, end int64) error) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		end := size
		switch {
		case errors.Is(err, unix.ENXIO):
			start, err = size, nil
		case err == nil:
			end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		}
		if err == nil {
			err = do(at, start, end)
		}
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

// Copy copies the image of a hibernated session durably: by sharing blocks where the file
// system can, else all data.
func Copy(from, to string) error {
	_, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its files have no volume of their own, as they do with a limited size: %w", sandbox.ErrNoMemoryImage)
	}
	if err == nil && clone(from, to) != nil {
		err = copySparse(from, to)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncFile(to)
}

// clone creates a file that shares all blocks of another (reflink).
func clone(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.IoctlFileClone(int(out.Fd()), int(in.Fd())), out.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

// copyFromDisk copies a file without its holes, durably, as it is on the disk and not as
// the page cache has it. It fails with dormouse.ErrFull if there is no room.
func copyFromDisk(ctx context.Context, old *os.File, to string) (err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if clone(old.Name(), to) == nil {
		return atomicfile.SyncFile(to)
	}
	info, err := old.Stat()
	if err != nil {
		return err
	}
	on, err := statDisk(filepath.Dir(to))
	if err != nil {
		return err
	}
	const sector = 512
	if at, ok := info.Sys().(*syscall.Stat_t); ok && at.Blocks*sector > on.forOpening() {
		return errNoRoom(at.Blocks*sector, on.forOpening())
	}
	in, err := openDirect(old)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = layer.Full(errors.Join(err, os.Remove(to)))
		}
	}()
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	const step = 1 << 20
	buf, err := unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned for direct reads
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(buf)) }()
	err = eachData(in, info.Size(), func(_, start, end int64) error {
		const block = 4096
		for at := start / block * block; at < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n, err := unix.Pread(int(in.Fd()), buf[:min(step, (end-at+block-1)/block*block)], at)
			if err == nil && n > 0 {
				_, err = out.WriteAt(buf[:n], at)
			}
			if err != nil {
				return err
			}
			if at += int64(n); n == 0 || n%block != 0 {
				return nil // the end of the file
			}
		}
		return nil
	})
	if err == nil {
		err = out.Sync()
	}
	return err
}

// openDirect opens a file for direct reads. Where a file system has none, its page cache
// is dropped first.
func openDirect(f *os.File) (*os.File, error) {
	in, err := os.OpenFile(f.Name(), os.O_RDONLY|unix.O_DIRECT, 0)
	if !errors.Is(err, unix.EINVAL) {
		return in, err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return nil, err
	}
	return os.Open(f.Name())
}
