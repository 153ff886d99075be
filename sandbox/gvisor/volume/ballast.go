//go:build linux

package volume

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A volume is a sparse file, larger than what the disk may have room for. If a write
// inside hit a hole while the disk is full, it would fail only at writeback, long after it
// was acknowledged, and abort the volume's journal. So every block inside that can be
// written to has a block on the disk:
//
//   - the image is allocated wherever the file system inside has data, metadata, journal or
//     free blocks;
//   - all other blocks inside belong to a file of ours, the ballast, and are holes in the
//     image. The sandbox sees the free space it can really have: a full disk is ENOSPC.
//
// As a volume fills, more of the image is allocated first and then released by the ballast.
// When blocks become free, the ballast takes them first and then they are punched out. A
// process that is killed in between leaves space unused, and never a block without space.

// ballastFile is where nothing in the sandbox can see it.
const ballastFile = "ballast"

func (v Volume) ballast() string { return v.Path(ballastFile) }

// Back allocates blocks for an open volume, with some headroom. It fails with
// dormouse.ErrFull if there is no room.
func (s *Store) Back(v Volume) (err error) {
	if !s.balancer.supported {
		return nil
	}
	on, err := statDisk(v.Dir)
	if err != nil {
		return err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return layer.Full(err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.begin(v, on); err != nil {
		return layer.Full(err)
	}
	need, err := b.missing()
	for try := 1; err == nil && need > on.forOpening() && try <= takeTries; try++ {
		need, err = b.takeAll(v)
	}
	if err != nil {
		return layer.Full(err)
	}
	if need > on.forOpening() {
		return errNoRoom(need, on.forOpening())
	}
	if err := b.backRest(); err != nil {
		return layer.Full(err)
	}
	has, err := v.free()
	// The balancer adds the rest of its headroom.
	if want := min(on.headroom(backStep, 1)-has, on.spare()-need); err == nil && want > 0 {
		err = b.release(want)
	}
	return layer.Full(err)
}

// takeTries is how often the ballast of a volume is asked for more before there is no room.
const takeTries = 3

// takeAll has the ballast take what is free inside after all: a check may have taken some of
// it, and what was freed inside a moment ago can be allocated only once that is committed.
// It returns what is missing then.
func (b *backing) takeAll(v Volume) (missing int64, err error) {
	if err := v.Sync(); err != nil {
		return 0, err
	}
	has, err := v.free()
	if err == nil {
		err = b.take(has - restHeadroom)
	}
	if err != nil {
		return 0, err
	}
	return b.missing()
}

// free is the free space inside.
func (v Volume) free() (int64, error) {
	d, err := statDisk(v.Mountpoint())
	return d.free, err
}

// balance adjusts the headroom of a volume: it adds some if less than three quarters are
// left, and returns some to the disk if there is more than times as much. It reports
// whether it did either.
func (v Volume) balance(headroom, spare, times int64) (did bool, err error) {
	const little = 256 << 10
	if there, err := v.IsMounted(); err != nil || !there {
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
			err = nil // another process took the space: the sandbox gets ENOSPC
		}
	} else {
		err = b.take(has - headroom)
	}
	return b.held != before, errors.Join(err, b.close())
}

// shrink returns to the disk what was allocated of the image and never written. Everything
// is synced and no process writes any more, though the file system may stay active while
// others have it mounted.
func (v Volume) shrink() error {
	image, err := os.OpenFile(v.Image(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b := &backing{image: image}
	defer func() { _ = b.close() }()
	at, err := image.Stat()
	if err != nil {
		return err
	}
	return eachData(image, at.Size(), func(hole, start, _ int64) error {
		if start == hole {
			return nil
		}
		return b.unback(hole, start-hole)
	})
}

// makeRoom has the ballast of an open volume release what is needed inside, as far as the
// disk can spare it.
func (s *Store) makeRoom(v Volume, need int64) (err error) {
	has, err := v.free()
	if err != nil || !s.balancer.supported || has >= need+minHeadroom {
		return err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return layer.Full(err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	on, err := statDisk(v.Dir)
	if err != nil {
		return err
	}
	return layer.Full(b.release(min(need+minHeadroom-has, on.spare())))
}
