//go:build linux

package layer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Capture copies what changed in a directory since a point into another one. It
// does so in passes: while the directory is written to, each pass leaves less to
// do for the one that is made while nobody writes.
type Capture struct {
	from   beneath.Tree
	to     string
	limits Limits
	before Index
	below  []string

	had   Index           // what is in to
	again map[uint64]bool // of it, what was not read in one instant
	now   Index           // of from, as the last pass has found it
	left  []Entry
	since time.Time // when the last pass began
	moved int64
	held  map[uint64]bool
}

// NewCapture begins a capture of what is in from into the empty directory to.
// Before is what from was like at the point to compare with, empty for all of it.
// Below are the layers that from lies over, the lowest first.
func NewCapture(from beneath.Tree, to string, before Index, below []string, l Limits) *Capture {
	return &Capture{from: from, to: to, before: before, below: below, limits: l, again: make(map[uint64]bool)}
}

// Pass makes the copy what the directory is now, and reports whether nothing
// changed meanwhile. Held are paths of files that somebody writes to as if they
// were memory: a look does not tell whether such a file is what it was, since what
// is written then changes no time.
func (c *Capture) Pass(ctx context.Context, held []string) (settled bool, err error) {
	c.since = time.Now()
	if c.now, c.left, err = scanLike(ctx, c.from.Host(), c.limits, max(len(c.now), len(c.before))); err != nil {
		return false, err
	}
	if c.now, err = hideOthers(ctx, c.now, c.left, c.below); err != nil {
		return false, fmt.Errorf("capture: %w", err)
	}
	c.held = c.now.inodes(held)
	maps.Copy(c.again, c.held)
	changed := Diff(c.doubted(), c.now)
	if err := c.fits(changed); err != nil {
		return false, err
	}
	moved, torn, err := amend(ctx, c.from.Host(), c.had, changed, c.again, c.to)
	if err != nil {
		return false, err
	}
	c.had, c.moved, c.again = changed, moved, make(map[uint64]bool)
	for _, e := range torn {
		c.again[e.Inode] = true
	}
	for _, e := range changed { // it may change once more and have the same time
		if c.fresh(e) {
			c.again[e.Inode] = true
		}
	}
	return len(torn) == 0, nil
}

// fresh reports whether an entry changed so short before the last pass that a change
// since need not show.
func (c *Capture) fresh(e Entry) bool {
	const tick = 20 * time.Millisecond // or less, which is as fine as file systems tell the time
	return e.Kind != Gone && time.Unix(e.Changed.Sec, e.Changed.Nsec).After(c.since.Add(-tick))
}

// Torn reports whether the last pass has met something that changed under it.
func (c *Capture) Torn() bool { return len(c.again) > 0 }

// Moved is about how many bytes the last pass had to copy.
func (c *Capture) Moved() int64 { return c.moved }

// doubted is what was there before, without what may have changed unseen.
func (c *Capture) doubted() Index {
	if len(c.held) == 0 {
		return c.before
	}
	return c.before.doubt(func(e Entry) bool { return c.held[e.Inode] })
}

// A name costs the sandbox that makes it nothing, and a layer that is mounted has a
// file for each (see Separate). So a file has a few names for what it takes itself,
// which is what compilers and package managers give theirs, and what all further ones
// take together is bounded.
const (
	fewNames  = 3
	maxLinked = 1 << 30 // bytes
)

func (c *Capture) fits(changed Index) error {
	left, linked := c.limits.Bytes, int64(maxLinked)
	names := make(map[uint64]int)
	for _, e := range changed {
		if left -= e.Size; left < 0 {
			return fmt.Errorf("capture: %w", ErrTooBig)
		}
		if e.Kind != File || e.Links <= fewNames {
			continue
		}
		if names[e.Inode]++; names[e.Inode] <= fewNames {
			continue
		}
		if linked -= e.Size; linked < 0 {
			return fmt.Errorf("capture: %w: files with more than %d hard links would take over %d MiB more than they have", ErrTooBig, fewNames, maxLinked>>20)
		}
	}
	return nil
}

// Index is what the directory was like at the last pass, to compare with at the
// next capture. What may change again without a later time is doubted in it.
func (c *Capture) Index() Index {
	return c.now.doubt(func(e Entry) bool { return c.held[e.Inode] || c.again[e.Inode] || c.fresh(e) })
}

// Written is what the copy holds: how many entries, and how many bytes are in
// them. Every layer has a root, which counts only if it is not what it was.
func (c *Capture) Written() (entries int, bytes int64) {
	for _, e := range c.had {
		bytes += e.Size
	}
	entries = len(c.had)
	if len(c.before) > 0 && len(c.had) > 0 && c.had[0].same(c.before[0]) {
		entries--
	}
	return entries, bytes
}

// Left is what no layer carries.
func (c *Capture) Left() []Entry { return c.left }

// inodes are those that paths lead to.
func (all Index) inodes(paths []string) map[uint64]bool {
	found := make(map[uint64]bool)
	for _, path := range paths {
		n, ok := all.find(path)
		if ok && all[n].Kind == File {
			found[all[n].Inode] = true
		}
	}
	return found
}

// doubt returns the index with some entries such that nothing is the same as they
// are.
func (all Index) doubt(which func(Entry) bool) Index {
	out := slices.Clone(all)
	for i, e := range out {
		if which(e) {
			out[i].Changed = Stamp{}
		}
	}
	return out
}

// Look is what a directory is like now, to be compared with later. What may change again
// without a later time is doubted in it.
func Look(ctx context.Context, dir beneath.Tree, l Limits) (Index, error) {
	c := Capture{since: time.Now()}
	all, _, err := Scan(ctx, dir.Host(), l)
	if err != nil {
		return nil, err
	}
	return all.doubt(c.fresh), nil
}

// LikeTop gives an empty directory that is to lie over layers what the root of the
// topmost has: its root is seen instead of theirs.
func LikeTop(ctx context.Context, top, dir string) error {
	r, err := openRoot(top)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	var at unix.Stat_t
	if err := unix.Fstat(int(r.Fd()), &at); err != nil {
		return err
	}
	_, err = copyWithin(ctx, nil, top, Index{entryAt(".", &at)}, dir)
	return err
}
