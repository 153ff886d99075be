//go:build linux

package volume

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

const (
	// minHeadroom can always be written to an open volume, unless it is full itself.
	minHeadroom = 16 << 20
	// MaxHeadroom is what a volume has allocated ahead at most.
	MaxHeadroom = 512 << 20
	// BuildHeadroom is for installing packages: package managers check free space first.
	BuildHeadroom = 4 << 30
	// headroomShare is the part of the spare room that all volumes together have as
	// headroom: one eighth.
	headroomShare = 8
	// backStep is how much is allocated at once: writers wait meanwhile.
	backStep = 64 << 20

	// restHeadroom is the headroom of a closed volume.
	restHeadroom = 2 << 20

	minReserve, maxReserve = 32 << 20, 1 << 30
	reserveShare           = 20
	imageLeaves            = 4 // a quarter
)

// disk is the size of the file system that the volumes are on.
type disk struct{ total, free int64 }

func statDisk(dir string) (disk, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return disk{}, fmt.Errorf("look how full the disk is: %w", err)
	}
	return disk{total: int64(at.Blocks) * at.Bsize, free: int64(at.Bavail) * at.Bsize}, nil //nolint:gosec // no disk is that large
}

// reserve is kept from volumes: it is for the database, blobs and memory images.
func (d disk) reserve() int64 {
	return min(max(d.total/reserveShare, minReserve), maxReserve)
}

// spare is what open volumes may take.
func (d disk) spare() int64 { return max(d.free-d.reserve(), 0) }

// forOpening is what a volume may take when it is opened: half of the reserve too, so that
// files can be removed to make room.
func (d disk) forOpening() int64 { return max(d.free-d.reserve()/2, 0) }

// forImage is what a memory image may take: most of the reserve too, but not what the
// database needs.
func (d disk) forImage() int64 { return max(d.free-d.reserve()/imageLeaves, 0) }

// headroom is how much one of several open volumes should have allocated ahead.
func (d disk) headroom(most int64, volumes int) int64 {
	return min(max(d.spare()/headroomShare/int64(max(volumes, 1)), minHeadroom), most)
}

// errNoRoom says that the disk has no room for a volume.
func errNoRoom(need, has int64) error {
	const unit = 1 << 20
	return fmt.Errorf("%w: the files of a session need %d MiB of the disk, and it can spare %d", dormouse.ErrFull, (need+unit-1)/unit, has/unit)
}

// FitsSpare refuses to make a volume ahead where sessions may need the room.
func (s *Store) FitsSpare() error {
	on, err := statDisk(s.dir)
	if err == nil && s.balancer.supported && on.spare() < 2*minHeadroom {
		err = errNoRoom(2*minHeadroom, on.spare())
	}
	return err
}

// FitsImage refuses to write a memory image that would leave no room for others.
func (s *Store) FitsImage(need int64) error {
	on, err := statDisk(s.dir)
	if err == nil && need > on.forImage() {
		const unit = 1 << 20
		err = fmt.Errorf("%w: the memory of a sandbox needs up to %d MiB of the disk, and it can spare %d", dormouse.ErrFull, need/unit, on.forImage()/unit)
	}
	return err
}

// FitsFiles refuses to make a sandbox on a disk that can name few files more: one takes
// about twenty, and without one of them processes that sleep would be lost.
func (s *Store) FitsFiles() error {
	const few = 128
	var at unix.Statfs_t
	if err := unix.Statfs(s.dir, &at); err != nil {
		return fmt.Errorf("look how full the disk is: %w", err)
	}
	if at.Files > 0 && at.Ffree < few { // some file systems make them as they are needed
		return fmt.Errorf("%w: a sandbox needs %d files of the disk, and it can have %d more", dormouse.ErrFull, few, at.Ffree)
	}
	return nil
}
