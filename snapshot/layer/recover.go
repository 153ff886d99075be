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
	Snapshot, Base []string
	Upper          beneath.Tree
	// Marked is what the directory was like at the snapshot, Synced what it was like when
	// it was last synced after that; nil if that is not known.
	AtSnapshot, Synced Index
	// Begun are the paths that Unsure has named to a recovery before this one, which was cut
	// off. They are put back though they may look like what somebody has removed.
	Interrupted []string
	// Mark is what the names of files that are kept beside others end in.
	Suffix string
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

	snapshot, found view
	base            []layerEntry // what Base shows
	upper           Index        // of the paths that the point has
	now, was, at    indexWalk    // of upper, Synced and Marked
	unhidden        []string     // paths that upper hides and the snapshot shows
	steps           []step
	planned         map[string]bool // paths of steps
	suffixes        map[string]int  // how many names were given beside those that begin like this
	whole           string          // all that the snapshot has below this is brought back
	passed          string          // what is below this is new, or hidden by a step
}

// step is one path to be put back. That of the kind Gone is hidden again.
type step struct {
	layerEntry
	savedAs string
}

// Plan finds out what to put back. Close must be called in the end.
func (r *Recovery) Plan(ctx context.Context) ([]Restored, error) {
	if err := r.plan(ctx); err != nil {
		return nil, fmt.Errorf("find what was lost: %w", err)
	}
	out := make([]Restored, 0, len(r.steps)+len(r.unhidden))
	for _, path := range r.unhidden {
		out = append(out, Restored{Path: path})
	}
	for _, s := range r.steps {
		_, shown := slices.BinarySearchFunc(r.unhidden, s.Path, compare)
		if !shown && s.Kind != Whiteout {
			out = append(out, Restored{Path: s.Path, SavedAs: s.savedAs})
		}
	}
	slices.SortStableFunc(out, func(a, b Restored) int { return compare(a.Path, b.Path) })
	return out, nil
}

// Ambiguous are the paths to put back that were not there when the directory was last synced.
// What is found there is moved out of the way before the snapshot's version has the name,
// which cannot be one step: a directory is not replaced by a file. Whoever finds such a
// path gone after that cannot tell it from one that somebody removed, so that the paths
// must be durable before Apply begins, and be Begun until all of them are put back.
func (r *Recovery) Ambiguous() (paths []string) {
	if r.Synced == nil || r.AtSnapshot == nil {
		return nil // nothing stays removed
	}
	for _, s := range r.steps {
		if _, had := r.Synced.at(s.Path); !had && s.Kind != Whiteout {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// Size is about how many bytes what is to be put back takes.
func (r *Recovery) Size() int64 {
	var n int64
	for _, s := range r.steps {
		n += s.Size + perInode
	}
	return n
}

func (r *Recovery) plan(ctx context.Context) error {
	if err := r.scan(ctx); err != nil {
		return err
	}
	r.planUnhide()
	r.found.entries = overlayBase(r.base, len(r.Base), r.upper)
	r.planned, r.suffixes = make(map[string]bool), make(map[string]int)
	begun := make(map[string]bool)
	for _, path := range r.Interrupted {
		begun[path] = true
	}
	r.now, r.was, r.at = indexWalk{all: r.upper}, indexWalk{all: r.Synced}, indexWalk{all: r.AtSnapshot}
	return compareViews(ctx, &r.snapshot, &r.found, func(was, now layerEntry) error {
		if was.Kind == 0 {
			return r.extra(now)
		}
		inside := r.whole != "" && strings.HasPrefix(was.Path, r.whole)
		if !inside && r.userChanged(was.Path) && !begun[was.Path] {
			return nil // somebody has changed it
		}
		return r.addStep(was, now)
	})
}

// scan looks at the layers, and at what the directory has of the snapshot's paths.
func (r *Recovery) scan(ctx context.Context) error {
	if err := r.snapshot.open(ctx, r.Snapshot, Unlimited); err != nil {
		return err
	}
	if err := r.found.open(ctx, r.Base, Unlimited); err != nil {
		return err
	}
	r.base = r.found.entries
	if err := r.found.addLayer(r.Upper.Host()); err != nil {
		return err
	}
	r.found.suspect = true
	var err error
	r.upper, err = scanPaths(ctx, r.found.roots[len(r.Base)], r.snapshot.entries)
	return err
}

// planUnhide has the directory show again what it hides of the snapshot, unless somebody
// has removed that. What the layers below show is compared after that.
func (r *Recovery) planUnhide() {
	r.now, r.was, r.at = indexWalk{all: r.upper}, indexWalk{all: r.Synced}, indexWalk{all: r.AtSnapshot}
	shown := make(Index, 0, len(r.upper))
	for _, e := range r.upper {
		if e.Kind == Whiteout && !r.userChanged(e.Path) {
			r.unhidden = append(r.unhidden, e.Path)
			continue
		}
		shown = append(shown, e)
	}
	r.upper = shown
}

// extra is called with what the snapshot has not. It is new, and stays, or it is in a
// layer below: whatever hid it there is lost, since nobody can write to that.
func (r *Recovery) extra(now layerEntry) error {
	if r.passed != "" && strings.HasPrefix(now.Path, r.passed) {
		return nil
	}
	r.passed = now.Path + "/"
	if in, ok := find(r.snapshot.entries, parent(now.Path)); !ok || in.Kind != Dir {
		return nil // a directory that somebody made in the place of something else
	}
	if kind, _, err := r.found.roots[len(r.Base)].lookup(now.Path); err != nil || kind != 0 {
		return err
	}
	r.planned[now.Path] = true
	r.steps = append(r.steps, step{layerEntry: layerEntry{Entry: Entry{Path: now.Path, Kind: Whiteout}}})
	return nil
}

// Close lets go of the directories.
func (r *Recovery) Close() {
	closeAll(r.snapshot.roots)
	closeAll(r.found.roots)
}

// userChanged reports whether what the directory makes of a path is what it made of it when
// it was last synced, and somebody had changed it by then. It is asked in the order of
// paths.
func (r *Recovery) userChanged(path string) bool {
	if r.Synced == nil || r.AtSnapshot == nil {
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
	return now.unchanged(was) && (!marked || !was.maybeUnchanged(then))
}

// maybeUnchanged reports whether nobody is known to have touched an entry since: one that was
// doubted has no time of its last change.
func (e Entry) maybeUnchanged(then Entry) bool {
	if then.Changed == (Stamp{}) {
		e.Changed = Stamp{}
	}
	return e.unchanged(then)
}

// indexWalk goes through an index. However deep its paths are, it looks at each once.
type indexWalk struct {
	all    Index
	hidden string // the last path met that hides what lies below it; empty if none does
}

// at is the entry of a path, which comes after all that were asked for before, and
// whether what lies below the directory is hidden there by something above the path.
func (w *indexWalk) at(path string) (e Entry, there, hidden bool) {
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

// addStep has a path put back, after the directories that it needs.
func (r *Recovery) addStep(was, now layerEntry) error {
	if r.planned[was.Path] {
		return nil
	}
	if above := parent(was.Path); above != was.Path && above != "." {
		if in, ok := find(r.found.entries, above); !ok || in.Kind != Dir {
			of, ok := find(r.snapshot.entries, above)
			if !ok {
				return fmt.Errorf("%.200q is in no directory", was.Path)
			}
			if err := r.addStep(of, in); err != nil {
				return err
			}
		}
	}
	s := step{layerEntry: was}
	upper, there := r.upper.at(was.Path)
	switch {
	case !there || upper.Kind == Whiteout:
	case was.Kind == Dir && upper.Kind == Dir:
	default:
		var err error
		if s.savedAs, err = r.asideName(was.Path); err != nil {
			return err
		}
	}
	switch {
	case was.Kind == Dir && now.Kind != Dir:
		r.whole = was.Path + "/"
	case was.Kind != Dir && now.Kind == Dir:
		r.passed = was.Path + "/"
	}
	r.planned[was.Path] = true
	r.steps = append(r.steps, s)
	return nil
}

// asideName is a name for what is found in the place of something else, which nothing has.
// Of long names that begin alike no number is tried twice.
func (r *Recovery) asideName(path string) (string, error) {
	const most, number = 255, 16
	name := base(path)
	alike := join(parent(path), name[:min(len(name), most-number-len(".found-"+r.Suffix))])
	for n := r.suffixes[alike]; ; n++ {
		end := ".found-" + r.Suffix
		if n > 0 {
			end += fmt.Sprintf("-%d", n)
		}
		kept := join(parent(path), name[:min(len(name), most-len(end))]+end)
		_, had := find(r.snapshot.entries, kept)
		there, err := r.exists(kept)
		if err != nil {
			return "", err
		}
		if !had && !there && !r.planned[kept] {
			r.planned[kept], r.suffixes[alike] = true, n+1
			return kept, nil
		}
	}
}

// exists reports whether the directory or a layer below has something at a path: what
// hides something is there and not shown.
func (r *Recovery) exists(path string) (bool, error) {
	for _, layer := range slices.Backward(r.found.roots) {
		if kind, _, err := layer.lookup(path); err != nil || kind != 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// find is the entry of a path in a view.
func find(entries []layerEntry, path string) (layerEntry, bool) {
	n, ok := slices.BinarySearchFunc(entries, path, func(p layerEntry, path string) int { return compare(p.Path, path) })
	if !ok {
		return layerEntry{}, false
	}
	return entries[n], true
}
