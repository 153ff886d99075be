//go:build linux

package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Space is what a disk has for layers. A workspace may hold more than the disk has left,
// and to take a snapshot of it must not take what the database is written to. The nil
// Room is without an end.
type Space struct {
	dir   string
	taken int64 // since it was looked at last
}

const (
	// Of the part of a disk that sandboxes leave to others, layers leave a quarter, and of
	// one that has hardly any, an eighth.
	leastFree, mostFree = 8 << 20, 256 << 20
	freeShare           = 80
	smallShare          = 8
	// checkEvery is how much is written before it is looked again.
	checkEvery = 1 << 20
	// perInode is what a name takes of a disk beside what is in its file.
	perInode = 4096
)

// SpaceIn is the room for what is written to a directory.
func SpaceIn(dir string) *Space { return &Space{dir: dir, taken: checkEvery} }

// Take must be called before something is written. It fails with ENOSPC if others need
// what is left.
func (r *Space) Take(bytes int64) error {
	if r == nil {
		return nil
	}
	if r.taken += bytes; r.taken < checkEvery {
		return nil
	}
	var at unix.Statfs_t
	if err := unix.Statfs(r.dir, &at); err != nil {
		return fmt.Errorf("look how full the disk is: %w", err)
	}
	total, free := int64(at.Blocks)*at.Bsize, int64(at.Bavail)*at.Bsize //nolint:gosec // no disk is that large
	if free-bytes < min(max(total/freeShare, leastFree), mostFree, total/smallShare) {
		return fmt.Errorf("%w: what is left of the disk is for others", unix.ENOSPC)
	}
	r.taken = 0
	return nil
}

// Full makes an error that says the disk is full a dormouse.ErrFull.
func Full(err error) error {
	if errors.Is(err, dormouse.ErrFull) || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
}
