//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Recovery brings back what a directory has lost of a snapshot, because the machine
// ended or its disk failed while it was written to.
//
// What was lost is told from what somebody changed or removed by what the directory
// was like when it was last synced: a file that is still as it was then was written by
// somebody, and stays. Of any other that is not what the snapshot has nobody can know
// who changed it. The snapshot's comes back, and the one found is kept beside it.
type Recovery struct {
	// Point are the layers of the snapshot, the lowest first, Base those that the
	// directory lies over.
	Point, Base []string
	Upper       beneath.Tree
	// Synced is what the directory was like when it was last synced; nil if that is not
	// known.
	Synced Index
	Limits Limits
	// Mark is what the names of files that are kept beside others end in.
	Mark string

	point, found view
	upper        Index
	now, was     walk // of upper and Synced
	steps        []step
	chosen       map[string]bool // paths of steps
	besides      map[string]int  // how many names were given beside those that begin like this
	whole        string          // all that the snapshot has below this is brought back
}

// step is one path to be put back.
type step struct {
	placed
	kept string
}

// Plan finds out what to put back. Close must be called in the end.
func (r *Recovery) Plan(ctx context.Context) ([]Restored, error) {
	if err := r.plan(ctx); err != nil {
		return nil, fmt.Errorf("find what was lost: %w", err)
	}
	out := make([]Restored, len(r.steps))
	for i, s := range r.steps {
		out[i] = Restored{Path: s.Path, Kept: s.kept}
	}
	return out, nil
}

func (r *Recovery) plan(ctx context.Context) (err error) {
	if r.upper, _, err = Scan(ctx, r.Upper.Host(), r.Limits); err != nil {
		return err
	}
	if err := r.point.open(ctx, r.Point, r.Limits); err != nil {
		return err
	}
	if err := r.found.open(ctx, append(slices.Clone(r.Base), r.Upper.Host()), r.Limits); err != nil {
		return err
	}
	r.chosen, r.besides = make(map[string]bool), make(map[string]int)
	r.now, r.was = walk{all: r.upper}, walk{all: r.Synced}
	return compareViews(ctx, &r.point, &r.found, func(was, now placed) error {
		inside := r.whole != "" && strings.HasPrefix(was.Path, r.whole)
		if was.Kind == 0 || !inside && r.stands(was.Path) {
			return nil // nothing of the snapshot is lost, or somebody has changed it
		}
		return r.choose(was, now)
	})
}

// Close lets go of the directories.
func (r *Recovery) Close() {
	closeAll(r.point.roots)
	closeAll(r.found.roots)
}

// stands reports whether what the directory makes of a path is what it made of it when
// it was last synced. It is asked in the order of paths.
func (r *Recovery) stands(path string) bool {
	if r.Synced == nil {
		return false
	}
	now, is, hides := r.now.at(path)
	was, had, hid := r.was.at(path)
	if is != had || hides != hid {
		return false
	}
	if now.Kind == Dir && was.Kind == Dir { // what is in it has a say of its own
		return now.Mode == was.Mode && now.UID == was.UID && now.GID == was.GID && now.Opaque == was.Opaque
	}
	return !is || now.same(was)
}

// walk goes through an index. However deep its paths are, it looks at each once.
type walk struct {
	all    Index
	hidden string // the last path met that hides what lies below it; empty if none does
}

// at is the entry of a path, which comes after all that were asked for before, and
// whether what lies below the directory is hidden there by something above the path.
func (w *walk) at(path string) (e Entry, there, hidden bool) {
	for len(w.all) > 0 && compare(w.all[0].Path, path) < 0 {
		if e := w.all[0]; (e.Kind != Dir || e.Opaque) && !below(w.hidden, e.Path) {
			w.hidden = e.Path
		}
		w.all = w.all[1:]
	}
	if len(w.all) > 0 && w.all[0].Path == path {
		e, there = w.all[0], true
	}
	return e, there, below(w.hidden, path)
}

// below reports whether a path is that of something in a directory, or further down.
func below(dir, path string) bool {
	switch dir {
	case "":
		return false
	case ".":
		return path != "."
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// at is the entry of a path.
func (all Index) at(path string) (Entry, bool) {
	n, ok := all.find(path)
	if !ok {
		return Entry{}, false
	}
	return all[n], true
}

// choose has a path put back, after the directories that it needs.
func (r *Recovery) choose(was, now placed) error {
	if r.chosen[was.Path] {
		return nil
	}
	if above := parent(was.Path); above != was.Path && above != "." {
		if in, ok := find(r.found.entries, above); !ok || in.Kind != Dir {
			of, ok := find(r.point.entries, above)
			if !ok {
				return fmt.Errorf("%.200q is in no directory", was.Path)
			}
			if err := r.choose(of, in); err != nil {
				return err
			}
		}
	}
	s := step{placed: was}
	upper, there := r.upper.at(was.Path)
	switch {
	case !there || upper.Kind == Gone:
	case was.Kind == Dir && upper.Kind == Dir:
	default:
		s.kept = r.beside(was.Path)
	}
	if was.Kind == Dir && now.Kind != Dir {
		r.whole = was.Path + "/"
	}
	r.chosen[was.Path] = true
	r.steps = append(r.steps, s)
	return nil
}

// beside is a name for what is found in the place of something else, which nothing has.
// Of long names that begin alike no number is tried twice.
func (r *Recovery) beside(path string) string {
	const most, number = 255, 16
	name := base(path)
	alike := join(parent(path), name[:min(len(name), most-number-len(".found-"+r.Mark))])
	for n := r.besides[alike]; ; n++ {
		end := ".found-" + r.Mark
		if n > 0 {
			end += fmt.Sprintf("-%d", n)
		}
		kept := join(parent(path), name[:min(len(name), most-len(end))]+end)
		_, found := find(r.found.entries, kept)
		_, had := find(r.point.entries, kept)
		_, hidden := r.upper.at(kept) // what hides something is there and not shown
		if !found && !had && !hidden && !r.chosen[kept] {
			r.chosen[kept], r.besides[alike] = true, n+1
			return kept
		}
	}
}

// find is the entry of a path in a view.
func find(entries []placed, path string) (placed, bool) {
	n, ok := slices.BinarySearchFunc(entries, path, func(p placed, path string) int { return compare(p.Path, path) })
	if !ok {
		return placed{}, false
	}
	return entries[n], true
}

// Apply puts back what was planned. It syncs nothing.
func (r *Recovery) Apply(ctx context.Context) error {
	dst, err := openRoot(r.Upper.Host())
	if err != nil {
		return fmt.Errorf("bring back what was lost: %w", err)
	}
	defer func() { _ = dst.Close() }()
	var dirs Index
	from := make([]copier, len(r.point.roots))
	for n, src := range r.point.roots {
		from[n] = copier{src: src, dst: dst, links: make(map[uint64]string)}
	}
	for _, s := range r.steps {
		if ctx.Err() != nil {
			return fmt.Errorf("bring back what was lost: %w", context.Cause(ctx))
		}
		err := r.reach(from, s.Path)
		if err == nil {
			err = r.put(dst, &from[s.layer], s)
		}
		if err != nil {
			return fmt.Errorf("bring back %.200q: %w", s.Path, err)
		}
		if s.Kind == Dir {
			dirs = append(dirs, s.Entry)
		}
	}
	if err := stampDirs(dst, dirs); err != nil {
		return fmt.Errorf("bring back what was lost: %w", err)
	}
	return nil
}

// reach makes the directories that a path is in, which until now only the layers below
// have.
func (r *Recovery) reach(from []copier, path string) error {
	var missing []placed
	for above := parent(path); above != "."; above = parent(above) {
		if _, there := r.upper.at(above); there || r.chosen[above] {
			break
		}
		p, ok := find(r.point.entries, above)
		if !ok {
			return errors.New("it is in no directory")
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		p.Opaque = false
		if err := from[p.layer].dir(p.Entry); err != nil {
			return err
		}
		r.chosen[p.Path] = true
	}
	return nil
}

// put puts back one path.
func (r *Recovery) put(dst root, from *copier, s step) error {
	upper, there := r.upper.at(s.Path)
	e := s.Entry
	e.Opaque = false
	switch {
	case s.kept != "":
		err := dst.in(s.Path, func(dir int, name string) error {
			return unix.Renameat2(dir, name, dir, base(s.kept), unix.RENAME_NOREPLACE)
		})
		if err != nil {
			return err
		}
		e.Opaque = e.Kind == Dir
	case there && upper.Kind == Gone:
		if err := dst.in(s.Path, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }); err != nil {
			return err
		}
		e.Opaque = e.Kind == Dir
	case there && e.Kind == Dir:
		e.Opaque = upper.Opaque
	}
	return from.merge(e)
}
