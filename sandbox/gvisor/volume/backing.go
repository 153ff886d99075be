//go:build linux

package volume

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

// extent is where a part of a file is on its device.
type extent struct{ logical, physical, length int64 }

// extents lists the allocated extents of a file from an offset on, in the order of their
// offsets.
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

// backing is the image of an open volume and its ballast.
type backing struct {
	image   *os.File
	size    int64
	ballast *os.File // nil if there is no inode left for it
	held    int64    // by the ballast
}

// sameDisk reports whether two files are on one file system.
func sameDisk(a, b *os.File) (bool, error) {
	var of [2]unix.Stat_t
	err := errors.Join(unix.Fstat(int(a.Fd()), &of[0]), unix.Fstat(int(b.Fd()), &of[1]))
	return err == nil && of[0].Dev == of[1].Dev, err
}

// openBacking opens and locks the ballast of an open volume. It returns nil if another
// process has it locked, or if the files are in a plain directory.
func (v Volume) openBacking() (_ *backing, err error) {
	if there, err := v.IsMounted(); err != nil || !there {
		return nil, err
	}
	image, err := os.OpenFile(v.Image(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it is being removed
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
	if same, err := sameDisk(b.ballast, image); err != nil || same { // it was unmounted at this very moment
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

// back allocates a part of the image.
func (b *backing) back(at, length int64) error {
	return retryEINTR(func() error { return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, length) })
}

// unback punches a hole into the image.
func (b *backing) unback(at, length int64) error {
	return retryEINTR(func() error {
		return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, at, length)
	})
}

// retryEINTR repeats a system call that a signal has interrupted.
func retryEINTR(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// backRest allocates everything that the ballast does not hold. From then on no write
// inside can fail for want of room on the disk.
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

// missing is how much backRest would allocate at most.
func (b *backing) missing() (int64, error) {
	var at unix.Stat_t
	if err := unix.Fstat(int(b.image.Fd()), &at); err != nil {
		return 0, err
	}
	const sector = 512
	return max(b.size-b.held-at.Blocks*sector, 0), nil
}

// release gives blocks of the ballast to the file system inside, after they are allocated.
// It stops where there is no room.
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

// unbackAll punches holes where extents of the ballast are, from an offset on.
func (b *backing) unbackAll(held []extent, from int64) error {
	for _, e := range held {
		skip := max(from-e.logical, 0)
		if err := b.unback(e.physical+skip, e.length-skip); err != nil {
			return fmt.Errorf("give back a part of a volume: %w", err)
		}
	}
	return nil
}

// take has the ballast hold more blocks that are free inside and returns them to the disk.
// There may be fewer than wanted, and none where the disk is full and holes may be written to:
// the ballast itself needs some blocks, what ext4 writes to a hole then is lost, and the
// volume has failed.
func (b *backing) take(want int64) error {
	const block = 4096
	if want -= want % block; want <= 0 || b.ballast == nil {
		return nil
	}
	missing, err := b.missing()
	if err != nil {
		return err
	}
	if missing > 0 {
		if on, err := statDisk(b.image.Name()); err != nil || on.free < minHeadroom {
			return err
		}
	}
	from := b.held
	wrong := retryEINTR(func() error { return unix.Fallocate(int(b.ballast.Fd()), 0, from, want) })
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

// begin creates the ballast of a volume that has none: it is new, full, or older than
// ballasts are.
func (b *backing) begin(v Volume, on disk) error {
	if b.held > 0 {
		return nil
	}
	has, err := v.free()
	if err != nil || has <= restHeadroom {
		return err
	}
	if on.forOpening() < minHeadroom { // the ballast itself needs some blocks
		return errNoRoom(minHeadroom, on.forOpening())
	}
	return b.take(has - restHeadroom)
}

// ioctl calls the file system of a file.
func ioctl[T any](f *os.File, what uintptr, request *T) error {
	return retryEINTR(func() error {
		if _, _, wrong := unix.Syscall(unix.SYS_IOCTL, f.Fd(), what, uintptr(unsafe.Pointer(request))); wrong != 0 { //nolint:gosec // its layout is the kernel's
			return wrong
		}
		return nil
	})
}
