//go:build linux

package layer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Recovery brings back what a directory has lost of a snapshot, because the machine
// ended or its disk failed while it was written to.
//
// What was lost is told from what somebody changed or removed by what the directory
// was like when it was last synced after the snapshot: a file that is still as it was
// then, and was not so at the snapshot, was written by somebody, and stays. A file of
// which everything but its bytes is as it was at the snapshot is torn: file systems may
// write bytes before they write that something was written. Of any other that is not
// what the snapshot has nobody can know who changed it. The snapshot's comes back, and
// the one found is kept beside it.
//
// Of the directory only what the snapshot has paths of is looked at and remembered:
// whatever else is in it, and however much, is none of its concern.
type Recovery struct {
	// Point are the layers of the snapshot, the lowest first, Base those that the
	// directory lies over. Each was within the limits of layers when it was made.
	Point, Base []string
	Upper       beneath.Tree
	// Marked is what the directory was like at the snapshot, Synced what it was like when
	// it was last synced after that; nil if that is not known.
	Marked, Synced Index
	// Begun are the paths that Unsure has named to a recovery before this one, which was cut
	// off. They are put back though they may look like what somebody has removed.
	Begun []string
	// Mark is what the names of files that are kept beside others end in.
	Mark string
	// Scratch is a directory of ours on the file system of Upper, in which files are made
	// before they have their names. What a recovery before has left in it is removed, and
	// so is the directory in the end.
	Scratch string
	// Outside is a directory on another file system, for found files that the one of Upper
	// has no room for beside the snapshot's; empty if there is none. It is made when it is
	// needed, and a file has the same path in it. Moved is called with that path when the
	// file is durable there, before it is removed from Upper.
	Outside string
	Moved   func(path string) error

	point, found view
	base         []placed // what Base shows
	upper        Index    // of the paths that the point has
	now, was, at walk     // of upper, Synced and Marked
	unhide       []string // paths that upper hides and the snapshot shows
	steps        []step
	chosen       map[string]bool // paths of steps
	besides      map[string]int  // how many names were given beside those that begin like this
	whole        string          // all that the snapshot has below this is brought back
	passed       string          // what is below this is new, or hidden by a step
}

// step is one path to be put back. That of the kind Gone is hidden again.
type step struct {
	placed
	kept string
}

// Plan finds out what to put back. Close must be called in the end.
func (r *Recovery) Plan(ctx context.Context) ([]Restored, error) {
	if err := r.plan(ctx); err != nil {
		return nil, fmt.Errorf("find what was lost: %w", err)
	}
	out := make([]Restored, 0, len(r.steps)+len(r.unhide))
	for _, path := range r.unhide {
		out = append(out, Restored{Path: path})
	}
	for _, s := range r.steps {
		_, shown := slices.BinarySearchFunc(r.unhide, s.Path, compare)
		if !shown && s.Kind != Gone {
			out = append(out, Restored{Path: s.Path, Kept: s.kept})
		}
	}
	slices.SortStableFunc(out, func(a, b Restored) int { return compare(a.Path, b.Path) })
	return out, nil
}

// Unsure are the paths to put back that were not there when the directory was last synced.
// What is found there is moved out of the way before the snapshot's version has the name,
// which cannot be one step: a directory is not replaced by a file. Whoever finds such a
// path gone after that cannot tell it from one that somebody removed, so that the paths
// must be durable before Apply begins, and be Begun until all of them are put back.
func (r *Recovery) Unsure() (paths []string) {
	if r.Synced == nil || r.Marked == nil {
		return nil // nothing stays removed
	}
	for _, s := range r.steps {
		if _, had := r.Synced.at(s.Path); !had && s.Kind != Gone {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// Needs is about how many bytes what is to be put back takes.
func (r *Recovery) Needs() int64 {
	var n int64
	for _, s := range r.steps {
		n += s.Size + perName
	}
	return n
}

func (r *Recovery) plan(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	r.unhides()
	r.found.entries = lay(r.base, len(r.Base), r.upper)
	r.chosen, r.besides = make(map[string]bool), make(map[string]int)
	begun := make(map[string]bool)
	for _, path := range r.Begun {
		begun[path] = true
	}
	r.now, r.was, r.at = walk{all: r.upper}, walk{all: r.Synced}, walk{all: r.Marked}
	return compareViews(ctx, &r.point, &r.found, func(was, now placed) error {
		if was.Kind == 0 {
			return r.unknown(now)
		}
		inside := r.whole != "" && strings.HasPrefix(was.Path, r.whole)
		if !inside && r.stands(was.Path) && !begun[was.Path] {
			return nil // somebody has changed it
		}
		return r.choose(was, now)
	})
}

// look looks at the layers, and at what the directory has of the snapshot's paths.
func (r *Recovery) look(ctx context.Context) error {
	if err := r.point.open(ctx, r.Point, Unlimited); err != nil {
		return err
	}
	if err := r.found.open(ctx, r.Base, Unlimited); err != nil {
		return err
	}
	r.base = r.found.entries
	if err := r.found.add(r.Upper.Host()); err != nil {
		return err
	}
	r.found.doubtful = true
	var err error
	r.upper, err = lookAlong(ctx, r.found.roots[len(r.Base)], r.point.entries)
	return err
}

// unhides has the directory show again what it hides of the snapshot, unless somebody
// has removed that. What the layers below show is compared after that.
func (r *Recovery) unhides() {
	r.now, r.was, r.at = walk{all: r.upper}, walk{all: r.Synced}, walk{all: r.Marked}
	shown := make(Index, 0, len(r.upper))
	for _, e := range r.upper {
		if e.Kind == Gone && !r.stands(e.Path) {
			r.unhide = append(r.unhide, e.Path)
			continue
		}
		shown = append(shown, e)
	}
	r.upper = shown
}

// unknown is called with what the snapshot has not. It is new, and stays, or it is in a
// layer below: whatever hid it there is lost, since nobody can write to that.
func (r *Recovery) unknown(now placed) error {
	if r.passed != "" && strings.HasPrefix(now.Path, r.passed) {
		return nil
	}
	r.passed = now.Path + "/"
	if in, ok := find(r.point.entries, parent(now.Path)); !ok || in.Kind != Dir {
		return nil // a directory that somebody made in the place of something else
	}
	if kind, _, err := r.found.roots[len(r.Base)].look(now.Path); err != nil || kind != 0 {
		return err
	}
	r.chosen[now.Path] = true
	r.steps = append(r.steps, step{placed: placed{Entry: Entry{Path: now.Path, Kind: Gone}}})
	return nil
}

// Close lets go of the directories.
func (r *Recovery) Close() {
	closeAll(r.point.roots)
	closeAll(r.found.roots)
}

// stands reports whether what the directory makes of a path is what it made of it when
// it was last synced, and somebody had changed it by then. It is asked in the order of
// paths.
func (r *Recovery) stands(path string) bool {
	if r.Synced == nil || r.Marked == nil {
		return false
	}
	now, is, hides := r.now.at(path)
	was, had, hid := r.was.at(path)
	then, marked, _ := r.at.at(path)
	switch {
	case is != had || hides != hid:
		return false
	case !is:
		return true
	case now.Kind == Dir && was.Kind == Dir: // what is in it has a say of its own
		return now.Mode == was.Mode && now.UID == was.UID && now.GID == was.GID && now.Opaque == was.Opaque
	}
	return now.same(was) && (!marked || !was.maySame(then))
}

// maySame reports whether nobody is known to have touched an entry since: one that was
// doubted has no time of its last change.
func (e Entry) maySame(then Entry) bool {
	if then.Changed == (Stamp{}) {
		e.Changed = Stamp{}
	}
	return e.same(then)
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
		var err error
		if s.kept, err = r.beside(was.Path); err != nil {
			return err
		}
	}
	switch {
	case was.Kind == Dir && now.Kind != Dir:
		r.whole = was.Path + "/"
	case was.Kind != Dir && now.Kind == Dir:
		r.passed = was.Path + "/"
	}
	r.chosen[was.Path] = true
	r.steps = append(r.steps, s)
	return nil
}

// beside is a name for what is found in the place of something else, which nothing has.
// Of long names that begin alike no number is tried twice.
func (r *Recovery) beside(path string) (string, error) {
	const most, number = 255, 16
	name := base(path)
	alike := join(parent(path), name[:min(len(name), most-number-len(".found-"+r.Mark))])
	for n := r.besides[alike]; ; n++ {
		end := ".found-" + r.Mark
		if n > 0 {
			end += fmt.Sprintf("-%d", n)
		}
		kept := join(parent(path), name[:min(len(name), most-len(end))]+end)
		_, had := find(r.point.entries, kept)
		there, err := r.anywhere(kept)
		if err != nil {
			return "", err
		}
		if !had && !there && !r.chosen[kept] {
			r.chosen[kept], r.besides[alike] = true, n+1
			return kept, nil
		}
	}
}

// anywhere reports whether the directory or a layer below has something at a path: what
// hides something is there and not shown.
func (r *Recovery) anywhere(path string) (bool, error) {
	for _, layer := range slices.Backward(r.found.roots) {
		if kind, _, err := layer.look(path); err != nil || kind != 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// find is the entry of a path in a view.
func find(entries []placed, path string) (placed, bool) {
	n, ok := slices.BinarySearchFunc(entries, path, func(p placed, path string) int { return compare(p.Path, path) })
	if !ok {
		return placed{}, false
	}
	return entries[n], true
}
