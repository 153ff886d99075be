//go:build linux

package gvisor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/flock"
)

// extent is where a part of a file lies.
type extent struct{ logical, physical, length int64 }

// extents lists where a file lies from an offset on, in the order of its offsets. What
// is not allocated is left out.
func extents(f *os.File, from int64) ([]extent, error) {
	const (
		fiemap = 0xc020660b // FS_IOC_FIEMAP
		last   = 1
		many   = 256
	)
	type mapped struct {
		Logical, Physical, Length uint64
		_                         [2]uint64
		Flags                     uint32
		_                         [3]uint32
	}
	var request struct {
		Start, Length         uint64
		Flags, Mapped, Extent uint32
		_                     uint32
		Extents               [many]mapped
	}
	var all []extent
	for at := uint64(from); ; { //nolint:gosec // offsets are not negative
		request.Start, request.Length, request.Extent = at, ^uint64(0)-at, many
		if err := ioctl(f, fiemap, &request); err != nil {
			return nil, fmt.Errorf("look where %s lies: %w", filepath.Base(f.Name()), err)
		}
		for _, e := range request.Extents[:min(request.Mapped, many)] {
			all = append(all, extent{int64(e.Logical), int64(e.Physical), int64(e.Length)}) //nolint:gosec // of a file
			at = e.Logical + e.Length
			if e.Flags&last != 0 {
				return all, nil
			}
		}
		if request.Mapped == 0 {
			return all, nil
		}
	}
}

// backing is a volume that is open, with the file that it lies in and its ballast.
type backing struct {
	image   *os.File
	size    int64
	ballast *os.File // nil if there can be none, for want of an inode
	held    int64    // by the ballast
}

// isOpen reports whether a volume is mounted. What is not has nothing to do with what
// is free where its files would be.
func (v volume) isOpen() (bool, error) {
	var at, beside unix.Stat_t
	err := unix.Stat(v.at(), &at)
	if err == nil {
		err = unix.Stat(v.dir, &beside)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && at.Dev != beside.Dev, err
}

// sameDisk reports whether two files are on one file system.
func sameDisk(a, b *os.File) (bool, error) {
	var of [2]unix.Stat_t
	err := errors.Join(unix.Fstat(int(a.Fd()), &of[0]), unix.Fstat(int(b.Fd()), &of[1]))
	return err == nil && of[0].Dev == of[1].Dev, err
}

// openBacking takes hold of the ballast of an open volume. It returns nil if somebody
// else has it just now, or if the files have no volume of their own.
func (v volume) openBacking() (_ *backing, err error) {
	if there, err := v.isOpen(); err != nil || !there {
		return nil, err
	}
	image, err := os.OpenFile(v.image(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it goes
	}
	if err != nil {
		return nil, err
	}
	b := &backing{image: image}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	at, err := image.Stat()
	if err != nil {
		return nil, err
	}
	b.size = at.Size()
	b.ballast, err = os.OpenFile(v.ballast(), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.ENOSPC) {
		b.ballast = nil
		return b, nil
	}
	if err != nil {
		b.ballast = nil
		return nil, err
	}
	if same, err := sameDisk(b.ballast, image); err != nil || same { // it was closed at this very moment
		if same {
			err = os.Remove(b.ballast.Name())
		}
		return nil, errors.Join(err, b.close())
	}
	err = flock.Lock(b.ballast, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, b.close()
	}
	if err != nil {
		return nil, err
	}
	if at, err = b.ballast.Stat(); err == nil {
		b.held = at.Size()
	}
	return b, err
}

func (b *backing) close() error {
	err := b.image.Close()
	if b.ballast != nil {
		err = errors.Join(err, b.ballast.Close())
	}
	return err
}

// back allocates a part of the volume's file.
func (b *backing) back(at, length int64) error {
	return again(func() error { return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, length) })
}

// unback gives a part of it back to the disk, and what is in it.
func (b *backing) unback(at, length int64) error {
	return again(func() error {
		return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, at, length)
	})
}

// again does what a signal has interrupted.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// backRest allocates everything that the ballast does not hold. From then on nothing
// that is written inside can fail for want of room on the disk.
func (b *backing) backRest() error {
	var held []extent
	if b.ballast != nil {
		var err error
		if held, err = extents(b.ballast, 0); err != nil {
			return err
		}
	}
	slices.SortFunc(held, func(a, b extent) int { return cmp.Compare(a.physical, b.physical) })
	var at int64
	for _, e := range append(held, extent{physical: b.size}) {
		if e.physical > at {
			if err := b.back(at, e.physical-at); err != nil {
				return fmt.Errorf("allocate a volume: %w", err)
			}
		}
		at = max(at, e.physical+e.length)
	}
	return nil
}

// lacks is how much of the disk backRest would take, at most.
func (b *backing) lacks() (int64, error) {
	var at unix.Stat_t
	if err := unix.Fstat(int(b.image.Fd()), &at); err != nil {
		return 0, err
	}
	const sector = 512
	return max(b.size-b.held-at.Blocks*sector, 0), nil
}

// release gives blocks that the ballast holds to the file system inside, each after
// it was allocated. It stops where there is no room.
func (b *backing) release(want int64) error {
	for want > 0 && b.held > 0 {
		left := max(b.held-min(want, backStep), 0)
		ends, err := extents(b.ballast, left)
		if err != nil {
			return err
		}
		for _, e := range ends {
			skip := max(left-e.logical, 0) // an extent may begin before
			if err := b.back(e.physical+skip, e.length-skip); err != nil {
				return errors.Join(fmt.Errorf("allocate a volume: %w", err), b.unbackAll(ends, left))
			}
		}
		if err := b.ballast.Truncate(left); err != nil {
			return fmt.Errorf("give up ballast: %w", err)
		}
		want -= b.held - left
		b.held = left
	}
	return nil
}

// unbackAll gives back where a part of the ballast lies, from an offset on.
func (b *backing) unbackAll(held []extent, from int64) error {
	for _, e := range held {
		skip := max(from-e.logical, 0)
		if err := b.unback(e.physical+skip, e.length-skip); err != nil {
			return fmt.Errorf("give back a part of a volume: %w", err)
		}
	}
	return nil
}

// take has the ballast hold more blocks that are free inside, and gives them back to
// the disk. There may be fewer than was thought.
func (b *backing) take(want int64) error {
	const block = 4096
	if want -= want % block; want <= 0 || b.ballast == nil {
		return nil
	}
	from := b.held
	wrong := again(func() error { return unix.Fallocate(int(b.ballast.Fd()), 0, from, want) })
	at, err := b.ballast.Stat()
	if err != nil {
		return err
	}
	b.held = at.Size()
	if wrong != nil && !errors.Is(wrong, unix.ENOSPC) {
		return fmt.Errorf("take ballast: %w", wrong)
	}
	more, err := extents(b.ballast, from)
	if err != nil {
		return err
	}
	return b.unbackAll(more, from)
}

// free is what the file system inside has left for whoever writes.
func (v volume) free() (int64, error) {
	d, err := diskOf(v.at())
	return d.free, err
}

// balance gives a volume its headroom: more if it has less than three quarters, and
// back to the disk if it has more than times as much. It reports whether it did either.
func (v volume) balance(headroom, spare, times int64) (did bool, err error) {
	const little = 256 << 10
	if there, err := v.isOpen(); err != nil || !there {
		return false, err
	}
	has, err := v.free()
	short, much := has < headroom-headroom/4 && spare > 0, has > times*headroom+little
	if err != nil || !short && !much {
		return false, err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return false, err
	}
	before := b.held
	if short {
		err = b.release(min(headroom-has, spare))
		if errors.Is(err, unix.ENOSPC) {
			err = nil // somebody else was quicker: that is told inside
		}
	} else {
		err = b.take(has - headroom)
	}
	return b.held != before, errors.Join(err, b.close())
}

// ioctl asks the file system of a file.
func ioctl[T any](f *os.File, what uintptr, request *T) error {
	return again(func() error {
		if _, _, wrong := unix.Syscall(unix.SYS_IOCTL, f.Fd(), what, uintptr(unsafe.Pointer(request))); wrong != 0 { //nolint:gosec // its layout is the kernel's
			return wrong
		}
		return nil
	})
}
