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

	written Index           // what is in to
	recopy  map[uint64]bool // of it, what was not read in one instant
	now     Index           // of from, as the last pass has found it
	skipped []Entry
	since   time.Time // when the last pass began
	copied  int64
	mapped  map[uint64]bool
}

// NewCapture begins a capture of what is in from into the empty directory to.
// Before is what from was like at the point to compare with, empty for all of it.
// Below are the layers that from lies over, the lowest first.
func NewCapture(from beneath.Tree, to string, before Index, below []string, l Limits) *Capture {
	return &Capture{from: from, to: to, before: before, below: below, limits: l, recopy: make(map[uint64]bool)}
}

// Pass makes the copy what the directory is now, and reports whether nothing
// changed meanwhile. Held are paths of files that somebody writes to as if they
// were memory: a look does not tell whether such a file is what it was, since what
// is written then changes no time.
func (c *Capture) Pass(ctx context.Context, held []string) (settled bool, err error) {
	c.since = time.Now()
	if c.now, c.skipped, err = scanSized(ctx, c.from.Host(), c.limits, max(len(c.now), len(c.before))); err != nil {
		return false, err
	}
	if c.now, err = addWhiteouts(ctx, c.now, c.skipped, c.below); err != nil {
		return false, fmt.Errorf("capture: %w", err)
	}
	c.mapped = c.now.inodes(held)
	maps.Copy(c.recopy, c.mapped)
	changed := Diff(c.baseline(), c.now)
	if err := c.checkSize(changed); err != nil {
		return false, err
	}
	moved, torn, err := updateCopy(ctx, c.from.Host(), c.written, changed, c.recopy, c.to)
	if err != nil {
		return false, err
	}
	c.written, c.copied, c.recopy = changed, moved, make(map[uint64]bool)
	for _, e := range torn {
		c.recopy[e.Inode] = true
	}
	for _, e := range changed { // it may change once more and have the same time
		if c.racy(e) {
			c.recopy[e.Inode] = true
		}
	}
	return len(torn) == 0, nil
}

// racy reports whether an entry changed so short before the last pass that a change
// since need not show.
func (c *Capture) racy(e Entry) bool {
	const tick = 20 * time.Millisecond // or less, which is as fine as file systems tell the time
	return e.Kind != Whiteout && time.Unix(e.Changed.Sec, e.Changed.Nsec).After(c.since.Add(-tick))
}

// Dirty reports whether the last pass has met something that changed under it.
func (c *Capture) Dirty() bool { return len(c.recopy) > 0 }

// Copied is about how many bytes the last pass had to copy.
func (c *Capture) Copied() int64 { return c.copied }

// baseline is what was there before, without what may have changed unseen.
func (c *Capture) baseline() Index {
	if len(c.mapped) == 0 {
		return c.before
	}
	return c.before.invalidate(func(e Entry) bool { return c.mapped[e.Inode] })
}

// A name costs the sandbox that makes it nothing, and a layer that is mounted has a
// file for each (see Separate). So a file has a few names for what it takes itself,
// which is what compilers and package managers give theirs, and what all further ones
// take together is bounded.
const (
	freeLinks      = 3
	maxLinkedBytes = 1 << 30 // bytes
)

func (c *Capture) checkSize(changed Index) error {
	left, linked := c.limits.Bytes, int64(maxLinkedBytes)
	names := make(map[uint64]int)
	for _, e := range changed {
		if left -= e.Size; left < 0 {
			return fmt.Errorf("capture: %w", ErrTooBig)
		}
		if e.Kind != File || e.Links <= freeLinks {
			continue
		}
		if names[e.Inode]++; names[e.Inode] <= freeLinks {
			continue
		}
		if linked -= e.Size; linked < 0 {
			return fmt.Errorf("capture: %w: files with more than %d hard links would take over %d MiB more than they have", ErrTooBig, freeLinks, maxLinkedBytes>>20)
		}
	}
	return nil
}

// Index is what the directory was like at the last pass, to compare with at the
// next capture. What may change again without a later time is doubted in it.
func (c *Capture) Index() Index {
	return c.now.invalidate(func(e Entry) bool { return c.mapped[e.Inode] || c.recopy[e.Inode] || c.racy(e) })
}

// Written is what the copy holds: how many entries, and how many bytes are in
// them. Every layer has a root, which counts only if it is not what it was.
func (c *Capture) Written() (entries int, bytes int64) {
	for _, e := range c.written {
		bytes += e.Size
	}
	entries = len(c.written)
	if len(c.before) > 0 && len(c.written) > 0 && c.written[0].unchanged(c.before[0]) {
		entries--
	}
	return entries, bytes
}

// Skipped is what no layer carries.
func (c *Capture) Skipped() []Entry { return c.skipped }

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

// invalidate returns the index with some entries such that nothing is the same as they
// are.
func (all Index) invalidate(which func(Entry) bool) Index {
	out := slices.Clone(all)
	for i, e := range out {
		if which(e) {
			out[i].Changed = Stamp{}
		}
	}
	return out
}

// ScanBaseline is what a directory is like now, to be compared with later. What may change again
// without a later time is doubted in it.
func ScanBaseline(ctx context.Context, dir beneath.Tree, l Limits) (Index, error) {
	c := Capture{since: time.Now()}
	all, _, err := Scan(ctx, dir.Host(), l)
	if err != nil {
		return nil, err
	}
	return all.invalidate(c.racy), nil
}

// CopyRootMetadata gives an empty directory that is to lie over layers what the root of the
// topmost has: its root is seen instead of theirs.
func CopyRootMetadata(ctx context.Context, top, dir string) error {
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
