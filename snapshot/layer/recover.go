//go:build linux

package layer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Recovery restores the files of a snapshot that a directory has lost because of a power
// cut or a failed disk.
//
// It tells what was lost from what users changed or removed by the index of the directory
// when it was last synced after the snapshot. A file that is still as it was at that sync,
// but not as it was at the snapshot, was written by a user, and stays. A file whose
// metadata is as at the snapshot, but whose bytes are not, is corrupt: file systems may
// write data before they write metadata. For any other file that differs from the snapshot
// it cannot be known what changed it. Then the snapshot's version is restored, and the one
// found is saved under another name.
//
// It visits only the paths of the directory that the snapshot has, however many others
// there are.
type Recovery struct {
	// Snapshot are the layers of the snapshot, and Base those that the directory lies over,
	// the lowest first. Each was within the limits when it was made.
	Snapshot, Base []string
	Upper          beneath.Tree
	// AtSnapshot is the index of the directory at the snapshot, Synced its index when it
	// was last synced after that; nil if unknown.
	AtSnapshot, Synced Index
	// Interrupted are the paths that Ambiguous has returned to an earlier recovery, which was
	// interrupted. They are restored even if they look as if a user had removed them.
	Interrupted []string
	// Suffix ends the names under which found files are saved.
	Suffix string
	// Scratch is a directory of ours on the file system of Upper, in which files are made
	// before they are renamed. Leftovers of an earlier recovery are removed from it, and in
	// the end so is the directory.
	Scratch string
	// Outside is a directory on another file system, for found files that do not fit on the
	// file system of Upper beside the snapshot's; empty if there is none. It is made when it
	// is needed, and a file has the same path in it. Moved is called with that path when the
	// file is durable there, before it is removed from Upper.
	Outside string
	Moved   func(path string) error

	snapshot, found view
	base            []layerEntry // the view of Base
	upper           Index        // at the paths of the snapshot
	now, was, at    indexWalk    // of upper, Synced and AtSnapshot
	unhidden        []string     // paths that a whiteout of upper hides and the snapshot has
	steps           []step
	planned         map[string]bool // paths of steps
	suffixes        map[string]int  // how many names with this beginning were given
	whole           string          // every path of the snapshot below this one is restored
	passed          string          // paths below this one are new, or hidden by a step
}

// step is one path to restore. If its kind is Whiteout, the path is hidden again.
type step struct {
	layerEntry
	savedAs string
}

// Plan finds out what to restore. Close must be called in the end.
func (r *Recovery) Plan(ctx context.Context) ([]Restored, error) {
	if err := r.plan(ctx); err != nil {
		return nil, fmt.Errorf("plan a recovery: %w", err)
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

// Ambiguous returns the paths to restore that did not exist when the directory was last
// synced. What is found there is moved away before the snapshot's version gets the name,
// which cannot be one atomic step: a file does not replace a directory. A recovery that is
// interrupted in between leaves a path that looks as if a user had removed it. So the
// caller must store the paths durably before Apply begins, and pass them as Interrupted
// until all are restored.
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

// Size is about how many bytes the files to restore take.
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
			return nil // a user has changed it
		}
		return r.addStep(was, now)
	})
}

// scan scans the layers, and the directory at the paths of the snapshot.
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

// planUnhide plans to remove whiteouts that hide files of the snapshot, unless a user has
// removed those files. The files of lower layers that become visible by that are compared
// afterwards.
func (r *Recovery) planUnhide() {
	r.now, r.was, r.at = indexWalk{all: r.upper}, indexWalk{all: r.Synced}, indexWalk{all: r.AtSnapshot}
	remaining := make(Index, 0, len(r.upper))
	for _, e := range r.upper {
		if e.Kind == Whiteout && !r.userChanged(e.Path) {
			r.unhidden = append(r.unhidden, e.Path)
			continue
		}
		remaining = append(remaining, e)
	}
	r.upper = remaining
}

// extra handles a path that the snapshot does not have. Either it is new, and stays, or it
// is in a layer below: then the whiteout that hid it is lost, since that layer is never
// written to.
func (r *Recovery) extra(now layerEntry) error {
	if r.passed != "" && strings.HasPrefix(now.Path, r.passed) {
		return nil
	}
	r.passed = now.Path + "/"
	if in, ok := find(r.snapshot.entries, parent(now.Path)); !ok || in.Kind != Dir {
		return nil // in a directory that a user made in the place of something else
	}
	if kind, _, err := r.found.roots[len(r.Base)].lookup(now.Path); err != nil || kind != 0 {
		return err
	}
	r.planned[now.Path] = true
	r.steps = append(r.steps, step{layerEntry: layerEntry{Entry: Entry{Path: now.Path, Kind: Whiteout}}})
	return nil
}

// Close closes the directories.
func (r *Recovery) Close() {
	closeAll(r.snapshot.roots)
	closeAll(r.found.roots)
}

// userChanged reports whether a path is as it was when the directory was last synced, and a
// user had changed it since the snapshot by then. It must be called in the order of paths.
func (r *Recovery) userChanged(path string) bool {
	if r.Synced == nil || r.AtSnapshot == nil {
		return false
	}
	now, is, hides := r.now.at(path)
	was, had, hid := r.was.at(path)
	then, known, _ := r.at.at(path)
	switch {
	case is != had || hides != hid:
		return false
	case !is:
		return true
	case now.Kind == Dir && was.Kind == Dir: // what is in it is judged by itself
		return now.Mode == was.Mode && now.UID == was.UID && now.GID == was.GID && now.Opaque == was.Opaque
	}
	return now.unchanged(was) && (!known || !was.maybeUnchanged(then))
}

// maybeUnchanged reports whether an entry may be unchanged. If the earlier entry was
// invalidated, it has no time of its last change, and that time is not compared.
func (e Entry) maybeUnchanged(then Entry) bool {
	if then.Changed == (Stamp{}) {
		e.Changed = Stamp{}
	}
	return e.unchanged(then)
}

// indexWalk walks an index. It visits each entry once, however deep the paths are.
type indexWalk struct {
	all    Index
	hidden string // the last path that hides what lies below it in lower layers; empty if none does
}

// at returns the entry of a path, which must come after all paths of earlier calls, and
// whether something above the path hides it in lower layers.
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

// below reports whether a path is inside a directory, at any depth.
func below(dir, path string) bool {
	switch dir {
	case "":
		return false
	case ".":
		return path != "."
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// at returns the entry of a path.
func (all Index) at(path string) (Entry, bool) {
	n, ok := all.find(path)
	if !ok {
		return Entry{}, false
	}
	return all[n], true
}

// addStep plans to restore a path, after the directories that it needs.
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

// asideName returns an unused name under which what was found at a path is saved. For long
// names with the same beginning it tries no number twice.
func (r *Recovery) asideName(path string) (string, error) {
	const most, number = 255, 16
	name := base(path)
	alike := join(parent(path), name[:min(len(name), most-number-len(".found-"+r.Suffix))])
	for n := r.suffixes[alike]; ; n++ {
		end := ".found-" + r.Suffix
		if n > 0 {
			end += fmt.Sprintf("-%d", n)
		}
		saved := join(parent(path), name[:min(len(name), most-len(end))]+end)
		_, had := find(r.snapshot.entries, saved)
		there, err := r.exists(saved)
		if err != nil {
			return "", err
		}
		if !had && !there && !r.planned[saved] {
			r.planned[saved], r.suffixes[alike] = true, n+1
			return saved, nil
		}
	}
}

// exists reports whether the directory or a layer below has anything at a path, visible or
// not.
func (r *Recovery) exists(path string) (bool, error) {
	for _, layer := range slices.Backward(r.found.roots) {
		if kind, _, err := layer.lookup(path); err != nil || kind != 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// find returns the entry of a path in a view.
func find(entries []layerEntry, path string) (layerEntry, bool) {
	n, ok := slices.BinarySearchFunc(entries, path, func(p layerEntry, path string) int { return compare(p.Path, path) })
	if !ok {
		return layerEntry{}, false
	}
	return entries[n], true
}
