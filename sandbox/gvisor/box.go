//go:build linux

package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// Directories under the driver's own.
const (
	rootsDir    = "root"
	boxesDir    = "boxes"
	sessionsDir = "sessions"
	lostDir     = "lost"
)

// box is the state of one sandbox on the host, whether it lives or not.
type box struct {
	id  string
	dir string
}

func (d *Driver) boxOf(id string) (box, error) {
	if !strings.HasPrefix(id, "sbx_") || strings.ContainsAny(id, "/.\x00") {
		return box{}, fmt.Errorf("%.40q names no sandbox: %w", id, dormouse.ErrInvalid)
	}
	return box{id: id, dir: filepath.Join(d.opts.Dir, boxesDir, id)}, nil
}

// run is mounted read-only in the sandbox: the sockets that it dials, and its runner's
// secret.
func (b box) run() string          { return filepath.Join(b.dir, "run") }
func (b box) socket() string       { return filepath.Join(b.run(), "socket") }
func (b box) egressSocket() string { return filepath.Join(b.run(), "outlet") }
func (b box) slot() string         { return filepath.Join(b.dir, "slot") }
func (b box) quiescedNote() string { return filepath.Join(b.dir, "quiet") }
func (b box) bundle() string       { return filepath.Join(b.dir, "bundle") }

// fence is the newest under which the sandbox was reached.
func (b box) fence() runner.FenceFile { return runner.FenceFile(filepath.Join(b.dir, "fence.json")) }

// refuses returns runner.ErrStale if f is old: the sandbox in the box is of a newer
// generation, or was reached under a newer epoch.
func (b box) refuses(generation uint64, f runner.Fence) error {
	if generation > f.Generation {
		return runner.ErrStale
	}
	return b.fence().Check(f)
}

// kernels is where gVisor keeps the state files and control sockets of kernels. Names of
// sockets must be short. Every process of a sandbox has this path and the id of its box on
// its command line.
func (d *Driver) kernels() string { return filepath.Join("/run/dormouse", d.opts.Instance) }

// newBox names a new box.
func (d *Driver) newBox() box {
	id := "sbx_" + strings.ToLower(rand.Text()[:16])
	return box{id: id, dir: filepath.Join(d.opts.Dir, boxesDir, id)}
}

// create creates the directories. The runner proves itself with the secret, which is kept
// here and where the runner finds it.
func (b box) create(secret string) error {
	for _, dir := range []string{b.run(), b.bundle(), b.slot()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a sandbox: %w", err)
		}
	}
	if err := errors.Join(b.writeSecret(secret), b.makeSlot()); err != nil {
		return fmt.Errorf("make a sandbox: %w", err)
	}
	return nil
}

// makeSlot creates the directory in which the files of a session are mounted. It is a
// shared mount, so that what is mounted there later is seen inside. It is itself a read-
// only file system, so that nothing inside can get between the host and what it mounts.
func (b box) makeSlot() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := mount.At("tmpfs", b.slot(), "tmpfs", flags, "mode=700,size=64k,nr_inodes=16"); err != nil {
		return err
	}
	for _, dir := range slotDirs {
		if err := os.Mkdir(filepath.Join(b.slot(), dir), 0o700); err != nil {
			return err
		}
	}
	for _, change := range []uintptr{flags | unix.MS_REMOUNT | unix.MS_RDONLY, unix.MS_SHARED} {
		if err := unix.Mount("", b.slot(), "", change, ""); err != nil {
			return fmt.Errorf("make the slot: %w", err)
		}
	}
	return nil
}

// slotDirs are the mountpoints of the workspace, the home directory and /tmp.
var slotDirs = []string{"ws", "home", "tmp"}

// writeSecret writes the secret to both places.
func (b box) writeSecret(secret string) error {
	for _, name := range []string{filepath.Join(b.dir, "secret"), filepath.Join(b.run(), "secret")} {
		if err := os.WriteFile(name, []byte(secret), 0o600); err != nil {
			return fmt.Errorf("keep the runner's secret: %w", err)
		}
	}
	return nil
}

func newSecret() string { return rand.Text() }

func (b box) secret() (string, error) {
	s, err := os.ReadFile(filepath.Join(b.dir, "secret"))
	if err != nil {
		return "", fmt.Errorf("read the runner's secret: %w", err)
	}
	return string(s), nil
}

// setNote leaves a note in the box for the next server.
func (b box) setNote(mark string) error { return os.WriteFile(mark, nil, 0o600) }

func (b box) hasNote(mark string) bool {
	_, err := os.Stat(mark)
	return !errors.Is(err, fs.ErrNotExist)
}

func (b box) clearNote(mark string) error {
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mountFiles mounts the files of a session in the slot.
func (b box) mountFiles(v volume.Volume, w sandbox.Workspace) error {
	if err := v.MountWorkspace(w, filepath.Join(b.slot(), "ws")); err != nil {
		return err
	}
	for dir, files := range map[string]beneath.Tree{"home": v.Home(), "tmp": v.Tmp()} {
		if err := unix.Mount(files.Host(), filepath.Join(b.slot(), dir), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// hasFiles reports whether all files of a session are mounted in the slot.
func (b box) hasFiles() (bool, error) {
	there, err := mount.Under(b.slot())
	for _, dir := range slotDirs {
		if !slices.Contains(there, filepath.Join(b.slot(), dir)) {
			return false, err
		}
	}
	return true, err
}

// remove removes the box of a sandbox that has ended. A link that has lost its runner and
// does not know yet that it is dead may create its socket again meanwhile.
func (b box) remove(ctx context.Context) error {
	if err := mount.UnmountAll(b.dir); err != nil {
		return err
	}
	for {
		err := os.RemoveAll(b.dir)
		if !errors.Is(err, unix.ENOTEMPTY) || sleep.For(ctx, time.Millisecond) != nil {
			return err
		}
	}
}

// record says which sandbox a session has, and how it was started.
type record struct {
	Box        string `json:"box"`
	Generation uint64 `json:"generation"`
	// Started is set once the runner has answered.
	Started bool `json:"started"`
	// Kept and Lost are what became of the processes of the generation before.
	Kept bool   `json:"kept,omitempty"`
	Lost string `json:"lost,omitempty"`
	// Spec is nil in records of older versions.
	Spec *boxSpec `json:"made,omitempty"`
	// Workspace is the number of the one it has.
	Workspace uint64 `json:"workspace,omitempty"`
	// Layout is the version of what is mounted in the sandbox and of how its runner is
	// spoken to. One of another layout cannot be attached to.
	Layout int `json:"layout,omitempty"`
}

// layout is that of the sandboxes that this version creates.
const layout = 1

// specOf is the spec of the sandbox in a box, from its session's record. One without a
// record has no network.
func (d *Driver) specOf(r *record, b box) boxSpec {
	switch {
	case r == nil || r.Box != b.id:
		m := d.defaults
		m.Network = false
		return m
	case r.Spec == nil:
		return d.defaults
	}
	return *r.Spec
}

func (v sessionDir) recordFile() string { return filepath.Join(v.Dir, "box.json") }

// readRecord returns the sandbox that a session has, nil if it has none.
func (v sessionDir) readRecord() (*record, error) {
	raw, err := os.ReadFile(v.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it has none
	}
	if err != nil {
		return nil, fmt.Errorf("read which sandbox there is: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, nil //nolint:nilerr,nilnil // corrupt after a power cut, which has ended every sandbox
	}
	return &r, nil
}

func (v sessionDir) writeRecord(r record) error {
	raw, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(v.recordFile()+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(v.recordFile()+".new", v.recordFile())
	}
	if err != nil {
		return fmt.Errorf("note which sandbox there is: %w", err)
	}
	return nil
}

// dropRecord removes the record of a session if it names this box.
func (v sessionDir) dropRecord(b box) error {
	if r, err := v.readRecord(); err != nil || r == nil || r.Box != b.id {
		return err
	}
	return os.Remove(v.recordFile())
}
