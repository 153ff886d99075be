//go:build linux

package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Space is the part of a disk that layers may take. A workspace may hold more than the
// disk has left, and a snapshot of it must not take what the database needs. A nil Space
// is unlimited.
type Space struct {
	dir   string
	taken int64 // since the disk was checked last
}

const (
	// leastFree and mostFree bound the space that layers leave free: a quarter of what
	// sandboxes leave free, and on a very small disk an eighth of the disk.
	leastFree, mostFree = 8 << 20, 256 << 20
	freeShare           = 80
	smallShare          = 8
	// checkEvery is how many bytes are written between two checks of the disk.
	checkEvery = 1 << 20
	// perInode is what an inode takes beside the content of the file.
	perInode = 4096
)

// SpaceIn is the space for what is written to a directory.
func SpaceIn(dir string) *Space { return &Space{dir: dir, taken: checkEvery} }

// Take must be called before something is written. It fails with ENOSPC if that would take
// the reserve.
func (r *Space) Take(bytes int64) error {
	if r == nil {
		return nil
	}
	if r.taken += bytes; r.taken < checkEvery {
		return nil
	}
	var at unix.Statfs_t
	if err := unix.Statfs(r.dir, &at); err != nil {
		return fmt.Errorf("check the space of the disk: %w", err)
	}
	total, free := int64(at.Blocks)*at.Bsize, int64(at.Bavail)*at.Bsize //nolint:gosec // no disk is that large
	if free-bytes < min(max(total/freeShare, leastFree), mostFree, total/smallShare) {
		return fmt.Errorf("%w: the rest of the disk is reserved", unix.ENOSPC)
	}
	r.taken = 0
	return nil
}

// Full wraps an error that says the disk is full in dormouse.ErrFull.
func Full(err error) error {
	if errors.Is(err, dormouse.ErrFull) || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
}
