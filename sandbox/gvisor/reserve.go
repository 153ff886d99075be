//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A volume is a file with holes, larger than what the disk may have room for. A write
// inside that meets a hole when the disk is full fails only when the kernel writes it
// back, long after it was acknowledged, and takes the volume's journal with it. So no
// block inside can be written to that has no room on the disk at its own offset:
//
//   - the file is allocated wherever the file system inside has something, or may put
//     something: data, metadata, journal and free blocks alike;
//   - all other blocks inside belong to a file of ours there, the ballast, and are
//     holes outside. What is told to a sandbox is what it can have: a full disk is
//     ENOSPC.
//
// As a volume fills, more of it is allocated, and then the ballast gives it up. What
// is free again goes the other way. Either is begun on the safe side, so that whoever
// is cut off in between leaves room unused and no block without any.

// ballastFile is where nothing in the sandbox can see it.
const ballastFile = "ballast"

func (v volume) ballast() string { return v.in(ballastFile) }

const (
	// leastHeadroom is what a volume can always be written to while it is open, for
	// as long as it is not full itself.
	leastHeadroom = 16 << 20
	mostHeadroom  = 512 << 20
	// buildHeadroom is for packages: who installs some looks first whether there is room.
	buildHeadroom = 4 << 30
	// headroomShare is the part of the disk's spare room that all volumes together are
	// given ahead.
	headroomShare = 8
	// backStep is how much is allocated at once: whoever writes waits meanwhile.
	backStep = 64 << 20

	// restHeadroom is what a volume keeps that is closed.
	restHeadroom = 2 << 20

	leastReserve, mostReserve = 32 << 20, 1 << 30
	reserveShare              = 20
	imageLeaves               = 4 // a quarter
)

// disk is the file system that a driver's directory is on.
type disk struct{ total, free int64 }

func diskOf(dir string) (disk, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return disk{}, fmt.Errorf("look how full the disk is: %w", err)
	}
	return disk{total: int64(at.Blocks) * at.Bsize, free: int64(at.Bavail) * at.Bsize}, nil //nolint:gosec // no disk is that large
}

// reserve is what no volume takes: it is for the database, blobs and memory images.
func (d disk) reserve() int64 {
	return min(max(d.total/reserveShare, leastReserve), mostReserve)
}

// spare is what volumes that are open may have of the disk.
func (d disk) spare() int64 { return max(d.free-d.reserve(), 0) }

// opening is what one that is opened may have: half of the reserve too, so that files
// can be removed to make room.
func (d disk) opening() int64 { return max(d.free-d.reserve()/2, 0) }

// image is what the memory image of a sandbox may have: most of the reserve too, but
// nothing of what the database is written to.
func (d disk) image() int64 { return max(d.free-d.reserve()/imageLeaves, 0) }

// headroom is what a volume, one of some, should have ahead of what is written to it.
func (d disk) headroom(most int64, volumes int) int64 {
	return min(max(d.spare()/headroomShare/int64(max(volumes, 1)), leastHeadroom), most)
}

// dropAhead gives up the volume that was made with a box whose session has one.
func (d *Driver) dropAhead(b box) error {
	v := b.ahead()
	d.reserves.shut(v)
	if _, err := os.Stat(v.image()); err != nil { //nolint:gosec // a box is named by us
		return nil //nolint:nilerr // there is none, or it is the session's by now
	}
	// What still holds on to it must not hold on to its room.
	if err := errors.Join(v.close(), os.Truncate(v.image(), 0)); err != nil {
		return fmt.Errorf("give up a volume made ahead: %w", err)
	}
	return os.Remove(v.image()) //nolint:gosec // as above
}

// errNoRoom says that there is no room on the disk for a volume.
func errNoRoom(need, has int64) error {
	const unit = 1 << 20
	return fmt.Errorf("%w: the files of a session need %d MiB of the disk, and it can spare %d", dormouse.ErrFull, (need+unit-1)/unit, has/unit)
}

// secure sees to it that an open volume is backed, with some headroom. It fails with
// dormouse.ErrFull if there is no room for that.
func (d *Driver) secure(v volume) (err error) {
	if !d.reserves.able {
		return nil
	}
	on, err := diskOf(v.dir)
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
	need, err := b.lacks()
	if err != nil {
		return err
	}
	if need > on.opening() {
		return errNoRoom(need, on.opening())
	}
	if err := b.backRest(); err != nil {
		return layer.Full(err)
	}
	has, err := v.free()
	// The rest of its headroom it is given while it is used already.
	if want := min(on.headroom(backStep, 1)-has, on.spare()-need); err == nil && want > 0 {
		err = b.release(want)
	}
	return layer.Full(err)
}

// fitsSpare refuses to make a volume ahead that sessions might have to do without.
func (d *Driver) fitsSpare() error {
	on, err := diskOf(d.opts.Dir)
	if err == nil && d.reserves.able && on.spare() < 2*leastHeadroom {
		err = errNoRoom(2*leastHeadroom, on.spare())
	}
	return err
}

// fitsImage refuses to write so much memory that others could write nothing any more.
func (d *Driver) fitsImage(need int64) error {
	on, err := diskOf(d.opts.Dir)
	if err == nil && need > on.image() {
		const unit = 1 << 20
		err = fmt.Errorf("%w: the memory of a sandbox needs up to %d MiB of the disk, and it can spare %d", dormouse.ErrFull, need/unit, on.image()/unit)
	}
	return err
}

// begin makes the ballast of a volume that has none: it is new, or from before there
// was any, or full.
func (b *backing) begin(v volume, on disk) error {
	if b.held > 0 {
		return nil
	}
	has, err := v.free()
	if err != nil || has <= restHeadroom {
		return err
	}
	if on.opening() < leastHeadroom { // the ballast itself needs some blocks
		return errNoRoom(leastHeadroom, on.opening())
	}
	return b.take(has - restHeadroom)
}

// shrink gives back to the disk what was allocated of a volume and never written to.
// All that was written is synced, and nobody writes any more. The file system may be
// there for much longer: whatever was started while it was mounted holds on to it.
func (v volume) shrink() error {
	image, err := os.OpenFile(v.image(), os.O_RDWR, 0)
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
