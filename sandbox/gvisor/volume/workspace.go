//go:build linux

package volume

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
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A session has one workspace after another in its volume, by number. Each has its own
// upper directory. The number that a sandbox was started with last is noted beside the
// volume, and older workspaces are removed after that.

const workspacesDir = "ws"

// workspaceDir is the directory of a workspace in the volume.
func (v Volume) workspaceDir(number uint64) string {
	if number == 0 {
		return v.Mountpoint()
	}
	return filepath.Join(v.Path(workspacesDir), strconv.FormatUint(number, 10))
}

func (v Volume) workDir(number uint64) string { return filepath.Join(v.workspaceDir(number), "work") }

// Upper is what was written to a workspace by its sandbox.
func (v Volume) Upper(number uint64) beneath.Tree {
	return beneath.At(filepath.Join(v.workspaceDir(number), "upper"))
}

// HasWorkspace reports whether a workspace exists. The volume is mounted.
func (v Volume) HasWorkspace(number uint64) (bool, error) {
	_, err := os.Stat(v.Upper(number).Host())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Marks are what the workspace was like at its last snapshots.
func (v Volume) Marks(number uint64) layer.Baselines {
	return layer.Baselines{Dir: filepath.Join(v.Dir, "marks", strconv.FormatUint(number, 10)), Of: v.Upper(number).Host()}
}

// Latest is the workspace that a sandbox was started with last.
func (v Volume) Latest() sandbox.Latest { return sandbox.Latest(filepath.Join(v.Dir, "workspace")) }

// CheckWorkspace refuses a workspace that the session cannot have any more, or never.
func (v Volume) CheckWorkspace(w sandbox.Workspace) error {
	if _, err := v.Latest().Check(w); err != nil {
		return err
	}
	for _, dir := range w.Layers {
		if !filepath.IsAbs(dir) || filepath.Dir(dir) != filepath.Dir(w.Layers[0]) {
			return fmt.Errorf("layer %.200q is not beside the others: %w", dir, dormouse.ErrInvalid)
		}
	}
	return nil
}

// CreateWorkspace creates a workspace that does not exist yet, whole or not at all. The
// volume is mounted, and older workspaces stay.
func (v Volume) CreateWorkspace(ctx context.Context, w sandbox.Workspace) error {
	to := v.workspaceDir(w.Number)
	if w.Number > 0 {
		if there, err := v.hasBase(w); err != nil || there {
			return err
		}
		if err := errors.Join(beneath.At(to).Remove(), beneath.At(to+".new").Remove()); err != nil {
			return fmt.Errorf("make workspace %d: %w", w.Number, err)
		}
		to += ".new"
	}
	for _, dir := range []string{"upper", "work"} {
		if err := filemode.MkdirAll(filepath.Join(to, dir)); err != nil {
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
		err = os.Rename(to, v.workspaceDir(w.Number))
	}
	if err != nil {
		return fmt.Errorf("make workspace %d: %w", w.Number, err)
	}
	crash.At(crash.WorkspaceMade)
	return nil
}

// baseFile holds the snapshot that a workspace is based on.
const baseFile = "base"

// hasBase reports whether a workspace exists with this base. One of the same number with
// another base was created for a sandbox that never started.
func (v Volume) hasBase(w sandbox.Workspace) (bool, error) {
	base, err := os.ReadFile(filepath.Join(v.workspaceDir(w.Number), baseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || dormouse.SnapshotID(base) == w.Base {
		return err == nil, err
	}
	if last, err := v.Latest().Number(); err != nil || last == w.Number {
		return false, errors.Join(err, fmt.Errorf("workspace %d lies over %.40q and not over %.40q: %w", w.Number, base, w.Base, dormouse.ErrInvalid))
	}
	return false, nil
}

// MountWorkspace mounts a workspace over its layer chain. All options of an overlay must
// fit a page, so that layers are named relative to their directory. Writing to one of
// several hard links in a layer copies up that one alone, as in a container: an overlay
// with an index would need the layers to be the same inodes for ever.
func (v Volume) MountWorkspace(w sandbox.Workspace, at string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	dirs := fmt.Sprintf(",upperdir=%s,workdir=%s", EscapeOverlay(v.Upper(w.Number).Host()), EscapeOverlay(v.workDir(w.Number)))
	if w.Number == 0 {
		return mount.At("overlay", at, "overlay", flags, "lowerdir="+EscapeOverlay(v.Path("base"))+dirs)
	}
	dirs += ",index=off,redirect_dir=off,metacopy=off"
	if len(w.Layers) == 0 {
		return mount.At("overlay", at, "overlay", flags, "lowerdir="+EscapeOverlay(v.Path("base"))+dirs)
	}
	var names []string
	for _, dir := range slices.Backward(w.Layers) {
		names = append(names, EscapeOverlay(filepath.Base(dir)))
	}
	options := "lowerdir=" + strings.Join(names, ":") + dirs
	if len(options) >= os.Getpagesize() {
		return fmt.Errorf("mount %d layers: their names are too long", len(w.Layers))
	}
	return inDir(filepath.Dir(w.Layers[0]), func() error { return mount.At("overlay", at, "overlay", flags, options) })
}

// inDir calls do with a working directory of its own, since that is otherwise shared by
// the whole process.
func inDir(dir string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
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

// EscapeOverlay escapes a path for the options of an overlay.
func EscapeOverlay(path string) string {
	return strings.NewReplacer(`\`, `\\`, ",", `\,`, ":", `\:`).Replace(path)
}

// LockCleanup excludes others, except the sandbox, from the files of the volume until done
// is called: old workspaces may still be removed when the sandbox has ended.
func (v Volume) LockCleanup(ctx context.Context) (done func(), err error) {
	dir := filepath.Join(v.Dir, "clearing")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return dirlock.Lock(ctx, dir)
}

// OldWorkspaces lists the files and marks of workspaces before one. The volume is mounted.
func (v Volume) OldWorkspaces(number uint64) []string {
	old := []string{v.Upper(0).Host(), v.workDir(0)}
	for _, dir := range []string{v.Path(workspacesDir), filepath.Join(v.Dir, "marks")} {
		entries, _ := os.ReadDir(dir) // a directory that does not exist has none
		for _, e := range entries {
			n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".new"), 10, 64)
			if err == nil && n < number {
				old = append(old, filepath.Join(dir, e.Name()))
			}
		}
	}
	return old
}
