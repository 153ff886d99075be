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

// Capture copies what changed in a directory since a snapshot into another one. Like a
// live migration it works in passes: those made while the directory is written to leave
// less to do for the last one, which is made while nothing writes.
type Capture struct {
	from   beneath.Tree
	to     string
	limits Limits
	before Index
	below  []string

	written Index           // what to holds
	recopy  map[uint64]bool // inodes whose copies in to may be inconsistent
	now     Index           // from at the last pass
	skipped []Entry
	since   time.Time // when the last pass began
	copied  int64
	mapped  map[uint64]bool
}

// NewCapture begins a capture of from into the empty directory to. Before is the index of
// from at the snapshot to compare with, empty to capture everything. Below are the layers
// that from lies over, the lowest first.
func NewCapture(from beneath.Tree, to string, before Index, below []string, l Limits) *Capture {
	return &Capture{from: from, to: to, before: before, below: below, limits: l, recopy: make(map[uint64]bool)}
}

// Pass brings the copy up to date, and reports whether nothing changed in the meantime.
// Mapped are the paths of files that are mapped for writing. Whether such a file has
// changed cannot be told from its metadata, since writes to mapped memory change no time.
func (c *Capture) Pass(ctx context.Context, mapped []string) (settled bool, err error) {
	c.since = time.Now()
	if c.now, c.skipped, err = scanSized(ctx, c.from.Host(), c.limits, max(len(c.now), len(c.before))); err != nil {
		return false, err
	}
	if c.now, err = addWhiteouts(ctx, c.now, c.skipped, c.below); err != nil {
		return false, fmt.Errorf("capture: %w", err)
	}
	c.mapped = c.now.inodes(mapped)
	maps.Copy(c.recopy, c.mapped)
	changed := Diff(c.baseline(), c.now)
	if err := c.checkSize(changed); err != nil {
		return false, err
	}
	moved, dirty, err := updateCopy(ctx, c.from.Host(), c.written, changed, c.recopy, c.to)
	if err != nil {
		return false, err
	}
	c.written, c.copied, c.recopy = changed, moved, make(map[uint64]bool)
	for _, e := range dirty {
		c.recopy[e.Inode] = true
	}
	for _, e := range changed { // it may change again and have the same time
		if c.racy(e) {
			c.recopy[e.Inode] = true
		}
	}
	return len(dirty) == 0, nil
}

// racy reports whether an entry changed so shortly before the last pass that another
// change may have left the same time.
func (c *Capture) racy(e Entry) bool {
	const tick = 20 * time.Millisecond // no file system has coarser times
	return e.Kind != Whiteout && time.Unix(e.Changed.Sec, e.Changed.Nsec).After(c.since.Add(-tick))
}

// Dirty reports whether something changed while the last pass read it.
func (c *Capture) Dirty() bool { return len(c.recopy) > 0 }

// Copied is about how many bytes the last pass has copied.
func (c *Capture) Copied() int64 { return c.copied }

// baseline is the index to compare with. Entries that may have changed without a trace
// are invalid in it.
func (c *Capture) baseline() Index {
	if len(c.mapped) == 0 {
		return c.before
	}
	return c.before.invalidate(func(e Entry) bool { return c.mapped[e.Inode] })
}

// A hard link costs a sandbox nothing, but becomes a file of its own in a layer that is
// mounted (see BreakHardLinks). So a file may have as many links as compilers and package
// managers make, and what all further links take together is bounded.
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

// Index is the directory at the last pass, for the next capture to compare with. Entries
// that may change again without a later time are invalid in it.
func (c *Capture) Index() Index {
	return c.now.invalidate(func(e Entry) bool { return c.mapped[e.Inode] || c.recopy[e.Inode] || c.racy(e) })
}

// Written counts the entries and bytes of the copy. Every layer has a root, which counts
// only if it has changed.
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

// Skipped lists what no layer carries.
func (c *Capture) Skipped() []Entry { return c.skipped }

// inodes are the inodes of the files at paths.
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

// invalidate returns a copy of the index in which some entries differ from any other.
func (all Index) invalidate(which func(Entry) bool) Index {
	out := slices.Clone(all)
	for i, e := range out {
		if which(e) {
			out[i].Changed = Stamp{}
		}
	}
	return out
}

// ScanBaseline returns the index of a directory, to be compared with later. Entries that
// may change again without a later time are invalid in it.
func ScanBaseline(ctx context.Context, dir beneath.Tree, l Limits) (Index, error) {
	c := Capture{since: time.Now()}
	all, _, err := Scan(ctx, dir.Host(), l)
	if err != nil {
		return nil, err
	}
	return all.invalidate(c.racy), nil
}

// CopyRootMetadata gives an empty directory that is to be mounted over layers the
// metadata of the root of the topmost, since the upper root is the visible one.
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
