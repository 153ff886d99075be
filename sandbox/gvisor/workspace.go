//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A session has one workspace after another in its volume, by number. Each is an
// upper directory of its own. Which one a sandbox was started with last is noted
// beside the volume, and those before it are removed after that.

const workspacesDir = "ws"

// place is the directory of a workspace in the volume.
func (v volume) place(number uint64) string {
	if number == 0 {
		return v.at()
	}
	return filepath.Join(v.in(workspacesDir), strconv.FormatUint(number, 10))
}

func (v volume) work(number uint64) string { return filepath.Join(v.place(number), "work") }

// upper is what was written to a workspace, by whatever runs in its sandbox.
func (v volume) upper(number uint64) beneath.Tree {
	return beneath.At(filepath.Join(v.place(number), "upper"))
}

// has reports whether there is such a workspace. The volume is open.
func (v volume) has(number uint64) (bool, error) {
	_, err := os.Stat(v.upper(number).Host())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// marks is what is known of a workspace's last snapshots.
func (v volume) marks(number uint64) layer.Baselines {
	return layer.Baselines{Dir: filepath.Join(v.dir, "marks", strconv.FormatUint(number, 10)), Of: v.upper(number).Host()}
}

// latest is the workspace which a sandbox was started with last.
func (v volume) latest() sandbox.Latest { return sandbox.Latest(filepath.Join(v.dir, "workspace")) }

// takes refuses a workspace that the session cannot have any more, or never.
func (v volume) takes(w sandbox.Workspace) error {
	if _, err := v.latest().Takes(w); err != nil {
		return err
	}
	for _, dir := range w.Layers {
		if !filepath.IsAbs(dir) || filepath.Dir(dir) != filepath.Dir(w.Layers[0]) {
			return fmt.Errorf("layer %.200q is not beside the others: %w", dir, dormouse.ErrInvalid)
		}
	}
	return nil
}

// makeWorkspace makes a workspace that is not there yet, whole or not at all. The
// volume is open, and the workspaces before this one stay.
func (v volume) makeWorkspace(ctx context.Context, w sandbox.Workspace) error {
	to := v.place(w.Number)
	if w.Number > 0 {
		if there, err := v.isOver(w); err != nil || there {
			return err
		}
		if err := errors.Join(beneath.At(to).Remove(), beneath.At(to+".new").Remove()); err != nil {
			return fmt.Errorf("make workspace %d: %w", w.Number, err)
		}
		to += ".new"
	}
	for _, dir := range []string{"upper", "work"} {
		if err := makeDirs(filepath.Join(to, dir)); err != nil {
			return fmt.Errorf("make workspace %d: %w", w.Number, err)
		}
	}
	if w.Number == 0 {
		return nil
	}
	if n := len(w.Layers); n > 0 {
		if err := layer.CopyRootMetadata(ctx, w.Layers[n-1], filepath.Join(to, "upper")); err != nil {
			return fmt.Errorf("make workspace %d: %w", w.Number, err)
		}
	}
	err := os.WriteFile(filepath.Join(to, baseFile), []byte(w.Base), 0o600)
	if err == nil {
		err = os.Rename(to, v.place(w.Number))
	}
	if err != nil {
		return fmt.Errorf("make workspace %d: %w", w.Number, err)
	}
	crash.At(crash.WorkspaceMade)
	return nil
}

// baseFile says which point a workspace lies over.
const baseFile = "base"

// isOver reports whether a workspace is there. One of the same number over another
// point was made for a sandbox that never started.
func (v volume) isOver(w sandbox.Workspace) (bool, error) {
	base, err := os.ReadFile(filepath.Join(v.place(w.Number), baseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || dormouse.SnapshotID(base) == w.Base {
		return err == nil, err
	}
	if last, err := v.latest().Number(); err != nil || last == w.Number {
		return false, errors.Join(err, fmt.Errorf("workspace %d lies over %.40q and not over %.40q: %w", w.Number, base, w.Base, dormouse.ErrInvalid))
	}
	return false, nil
}

// mountWorkspace mounts a workspace over its layers. The names of all layers must
// fit a page, so that they are told from the directory they are in. A file with
// several names that is written to is then a file of its own, as in a container:
// to keep them one, the layers would have to be the very same files for ever.
func (v volume) mountWorkspace(w sandbox.Workspace, at string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	dirs := fmt.Sprintf(",upperdir=%s,workdir=%s", escape(v.upper(w.Number).Host()), escape(v.work(w.Number)))
	if w.Number == 0 {
		return mountAt("overlay", at, "overlay", flags, "lowerdir="+escape(v.in("base"))+dirs)
	}
	dirs += ",index=off,redirect_dir=off,metacopy=off"
	if len(w.Layers) == 0 {
		return mountAt("overlay", at, "overlay", flags, "lowerdir="+escape(v.in("base"))+dirs)
	}
	var names []string
	for _, dir := range slices.Backward(w.Layers) {
		names = append(names, escape(filepath.Base(dir)))
	}
	options := "lowerdir=" + strings.Join(names, ":") + dirs
	if len(options) >= os.Getpagesize() {
		return fmt.Errorf("mount %d layers: their names are too long", len(w.Layers))
	}
	return from(filepath.Dir(w.Layers[0]), func() error { return mountAt("overlay", at, "overlay", flags, options) })
}

// from does something with a directory as the current one, which is otherwise that
// of the whole process.
func from(dir string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is no good for anything else, and ends
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(dir)
		}
		if err != nil {
			done <- fmt.Errorf("enter %s: %w", dir, err)
			return
		}
		done <- do()
	}()
	return <-done
}

// clear removes the workspaces before the one that a sandbox has, which may take
// a while. Whoever is cut off leaves the rest to the next start.
func (d *Driver) clear(ctx context.Context, v volume, number uint64) {
	if number == 0 {
		return
	}
	ctx, over := fencing.Outlive(ctx)
	d.clearing.Go(func() {
		defer over()
		done, err := v.clears(ctx)
		if err != nil {
			d.log.WarnContext(ctx, "old workspaces not removed", "session", v.session, "error", err)
			return
		}
		defer done()
		for _, old := range v.before(number) {
			if ctx.Err() != nil {
				return // the lease is over, and the rest somebody else's
			}
			if err := beneath.At(old).Remove(); err != nil {
				d.log.WarnContext(ctx, "old workspace not removed", "session", v.session, "error", err)
			}
		}
	})
}

// clears keeps others from the files of the volume, but for its sandbox, until done is
// called: whoever removes old workspaces may go on when the sandbox has ended.
func (v volume) clears(ctx context.Context) (done func(), err error) {
	dir := filepath.Join(v.dir, "clearing")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return dirlock.Lock(ctx, dir)
}

// before lists what there is of the workspaces before one. The volume is open.
func (v volume) before(number uint64) []string {
	old := []string{v.upper(0).Host(), v.work(0)}
	for _, dir := range []string{v.in(workspacesDir), filepath.Join(v.dir, "marks")} {
		entries, _ := os.ReadDir(dir) // what is not there is not old
		for _, e := range entries {
			n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".new"), 10, 64)
			if err == nil && n < number {
				old = append(old, filepath.Join(dir, e.Name()))
			}
		}
	}
	return old
}
