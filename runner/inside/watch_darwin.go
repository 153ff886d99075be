package inside

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	// pollEvery is how often the files are looked at. The kqueue of macOS would need
	// every one of them open.
	pollEvery = time.Second
	// maxPolled bounds the files that are looked at.
	maxPolled = 100_000
)

// watcher reports changes below a path. It polls and compares.
type watcher struct {
	top       string
	recursive bool
	seen      map[string]fs.FileInfo // by path relative to top
	full      bool                   // an overflow was reported
}

// watch starts to watch; it reports changes from now on.
func (r *Runner) watch(what runner.Watch) (endpoint, error) {
	top, err := r.resolve(what.Path)
	if err != nil {
		return nil, err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w := &watcher{top: top, recursive: what.Recursive}
	w.seen, _ = w.look()
	return w, nil
}

func (w *watcher) release() {}

func (w *watcher) serve(ctx context.Context, c *net.UnixConn) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		discard(c)
		stop()
	})
	defer func() { _ = c.Close() }()
	lines := bufio.NewWriter(c)
	enc := json.NewEncoder(lines)
	for ctx.Err() == nil {
		changes := w.poll()
		for _, change := range changes {
			if enc.Encode(change) != nil {
				return
			}
		}
		n := len(changes)
		if lines.Flush() != nil || n > 0 && changes[n-1] == (runner.Change{Path: ".", Op: runner.Removed}) {
			return
		}
		_ = sleep.For(ctx, pollEvery)
	}
}

// poll returns what has changed since the last poll.
func (w *watcher) poll() []runner.Change {
	now, whole := w.look()
	var changes []runner.Change
	for name, at := range now {
		was, ok := w.seen[name]
		switch {
		case !ok || !os.SameFile(was, at):
			changes = append(changes, runner.Change{Path: name, Op: runner.Created})
		case !at.IsDir() && (was.Size() != at.Size() || !was.ModTime().Equal(at.ModTime())):
			changes = append(changes, runner.Change{Path: name, Op: runner.Written})
		case was.Mode() != at.Mode():
			changes = append(changes, runner.Change{Path: name, Op: runner.Modified})
		}
	}
	for name := range w.seen {
		if _, ok := now[name]; !ok {
			changes = append(changes, runner.Change{Path: name, Op: runner.Removed})
		}
	}
	// The top comes last, because nothing is reported after its removal.
	slices.SortFunc(changes, func(a, b runner.Change) int {
		switch {
		case a.Path == b.Path:
			return 0
		case a.Path == ".":
			return 1
		case b.Path == ".":
			return -1
		}
		return cmp.Compare(a.Path, b.Path)
	})
	if !whole && !w.full {
		w.full = true
		changes = slices.Insert(changes, 0, runner.Change{Overflow: true})
	}
	w.seen = now
	return changes
}

// look lists what there is, and reports false if that is more than is looked at.
func (w *watcher) look() (found map[string]fs.FileInfo, whole bool) {
	found = make(map[string]fs.FileInfo)
	full := errors.New("more than is looked at")
	err := filepath.WalkDir(w.top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed meanwhile
		}
		name, err := filepath.Rel(w.top, path)
		if err != nil {
			return err
		}
		at, err := d.Info()
		if err != nil {
			return nil
		}
		if len(found) >= maxPolled {
			return full
		}
		found[name] = at
		if d.IsDir() && name != "." && !w.recursive {
			return fs.SkipDir
		}
		return nil
	})
	return found, !errors.Is(err, full)
}
