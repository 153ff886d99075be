//go:build linux

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot"
)

// eager is a store that keeps nothing for later use.
func eager(o *snapshot.Options) { o.Idle = 1 }

// naming says that sessions name these layers.
func naming(layers ...dormouse.Layer) func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error) {
	return func(_ context.Context, ds []dormouse.Digest) ([]dormouse.Digest, error) {
		var found []dormouse.Digest
		for _, l := range layers {
			if slices.Contains(ds, l.Digest) {
				found = append(found, l.Digest)
			}
		}
		return found, nil
	}
}

func everybody(dormouse.SessionID) (bool, error) { return true, nil }

func (h *home) sweep(want int, named ...dormouse.Layer) {
	h.t.Helper()
	if n, err := h.Sweep(h.t.Context(), naming(named...), everybody); err != nil || n != want {
		h.t.Errorf("sweep = %d, %v, want %d", n, err, want)
	}
}

func TestSweepRemovesWhatNobodyUsesOrNames(t *testing.T) {
	h := open(t, eager)
	used, named, neither := h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3")
	h.use(1, used)
	h.sweep(1, named)
	h.sweep(0, named)
	left := list(t, filepath.Join(h.dir, "layers"))
	if want := []string{short(used), short(named)}; len(left) != 2 || !slices.Contains(left, want[0]) || !slices.Contains(left, want[1]) {
		t.Errorf("directories are %v, want %v", left, want)
	}
	if names := list(t, filepath.Join(h.dir, "names")); !slices.Equal(names, left) {
		t.Errorf("names are %v, directories %v", names, left)
	}
	// It is only a directory that went.
	if got := content(t, h.use(2, neither)[0], "c"); got != "3" {
		t.Errorf("it says %q", got)
	}
	must(t, h.Release(owner, 1))
	h.sweep(1, named)
	must(t, h.Release(owner, 2))
	h.sweep(2)
}

func short(l dormouse.Layer) string { return string(l.DiffID[7:23]) }

func TestSweepLeavesWhatMayBeUsedSoon(t *testing.T) {
	h := open(t)
	h.keep("a", "1")
	h.sweep(0)
	name := filepath.Join(h.dir, "names", list(t, filepath.Join(h.dir, "names"))[0])
	age := func() {
		t.Helper()
		raw, err := os.Readlink(name)
		must(t, err)
		must(t, os.Remove(name))
		must(t, os.Symlink(raw, name))
		chtimes(t, name, time.Now().Add(-2*time.Hour))
	}
	age()
	h.keep("a", "1") // what is put again is wanted
	h.sweep(0)
	age()
	h.sweep(1)
}

func TestSweepReleasesWhatTheDeadUsed(t *testing.T) {
	h := open(t, eager)
	l, other := h.keep("a", "1"), h.keep("b", "2")
	h.use(1, l)
	_, err := h.Acquire(t.Context(), "sesn_dead", 7, []dormouse.Layer{other}, nil)
	must(t, err)
	alive := func(id dormouse.SessionID) (bool, error) { return id == owner, nil }
	if n, err := h.Sweep(t.Context(), naming(), alive); err != nil || n != 1 {
		t.Errorf("sweep = %d, %v", n, err)
	}
	if notes := list(t, filepath.Join(h.dir, "uses")); !slices.Equal(notes, []string{string(owner) + "-1"}) {
		t.Errorf("uses are %v", notes)
	}
}

// A sweep that does not know what is in use removes nothing.
func TestSweepRemovesNothingWhenItCannotAsk(t *testing.T) {
	h := open(t, eager)
	l := h.keep("a", "1")
	h.use(1, l)
	h.keep("b", "2")
	because := errors.New("because")
	noneNamed := func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error) { return nil, because }
	noneAlive := func(dormouse.SessionID) (bool, error) { return false, because }
	if n, err := h.Sweep(t.Context(), noneNamed, everybody); !errors.Is(err, because) || n != 0 {
		t.Errorf("sweep = %d, %v", n, err)
	}
	if n, err := h.Sweep(t.Context(), naming(), noneAlive); !errors.Is(err, because) || n != 0 {
		t.Errorf("sweep = %d, %v", n, err)
	}
	if names := list(t, filepath.Join(h.dir, "layers")); len(names) != 2 {
		t.Errorf("directories are %v", names)
	}
	if notes := list(t, filepath.Join(h.dir, "uses")); len(notes) != 1 {
		t.Errorf("uses are %v", notes)
	}
}

func TestSweepRemovesWhatTheDeadLeft(t *testing.T) {
	h := open(t, eager)
	g := h.staged("a", "1")
	left := filepath.Join(h.dir, "tmp", "of the dead", "stage-1")
	must(t, os.MkdirAll(left, 0o700))
	h.sweep(0)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stage of the dead is left: %v", err)
	}
	if got := content(t, g.Dir, "a"); got != "1" {
		t.Errorf("a stage of the living says %q", got)
	}
}

// What was merged to be mounted goes with its use, and notes of runs in time.
func TestSweepRemovesWhatWasMerged(t *testing.T) {
	h := open(t, eager)
	var line []dormouse.Layer
	for n := range 70 {
		line = append(line, h.keep(fmt.Sprint(n), ""))
	}
	h.use(1, line...)
	h.sweep(0, line...)
	must(t, h.Release(owner, 1))
	h.sweep(1, line...)
	must(t, h.Compact(t.Context(), line[:4]))
	h.sweep(1, line...)
	if notes := list(t, filepath.Join(h.dir, "runs")); len(notes) > 0 {
		t.Errorf("runs are %v", notes)
	}
}

// Whatever others do at the same time in the same directory, what was acquired
// stays until it is released.
func TestSweepTakesNothingAway(t *testing.T) {
	h := open(t, eager)
	var line []dormouse.Layer
	for n := range 10 {
		line = append(line, h.keep(fmt.Sprintf("f%d", n), fmt.Sprint(n)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var sweeping, working sync.WaitGroup
	for range 2 {
		s := openAt(t, h.dir, h.blobs, eager)
		sweeping.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(t.Context(), naming(), everybody); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for w := range uint64(3) {
		s := openAt(t, h.dir, h.blobs, eager)
		working.Go(func() {
			for n := range 15 {
				if err := s.work(w, n, line); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	stop()
	sweeping.Wait()
}

// work uses a chain, in whichever way, and makes sure that it stays.
func (h *home) work(worker uint64, n int, line []dormouse.Layer) error {
	ctx := h.t.Context()
	if n%3 == 0 {
		if err := h.Compact(ctx, line); err != nil {
			return err
		}
		line = h.Compacted(line)
	}
	dirs, err := h.Acquire(ctx, owner, worker, line, nil)
	if err != nil {
		return err
	}
	files := 0
	for range 20 {
		files = 0
		for _, dir := range dirs {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			files += len(entries)
		}
	}
	if files != 10 {
		return fmt.Errorf("there are %d files", files)
	}
	return h.Release(owner, worker)
}
