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
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// What lies under a driver's directory.
const (
	rootsDir    = "root"
	boxesDir    = "boxes"
	sessionsDir = "sessions"
	lostDir     = "lost"
)

// box is where one sandbox keeps its state on the host, whether it lives or not.
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

// run is what the sandbox is shown of the host, and can only read: the sockets it
// dials, and its runner's secret.
func (b box) run() string    { return filepath.Join(b.dir, "run") }
func (b box) socket() string { return filepath.Join(b.run(), "socket") }
func (b box) outlet() string { return filepath.Join(b.run(), "outlet") }
func (b box) slot() string   { return filepath.Join(b.dir, "slot") }
func (b box) quiet() string  { return filepath.Join(b.dir, "quiet") }
func (b box) bundle() string { return filepath.Join(b.dir, "bundle") }

// fence is the newest that the sandbox was reached under.
func (b box) fence() runner.FenceFile { return runner.FenceFile(filepath.Join(b.dir, "fence.json")) }

// refuses returns runner.ErrStale if whoever comes under f is late: the sandbox in the
// box is of a newer generation, or was reached under a newer epoch.
func (b box) refuses(generation uint64, f runner.Fence) error {
	if generation > f.Generation {
		return runner.ErrStale
	}
	return b.fence().Check(f)
}

// kernels is where gVisor keeps its notes, and the sockets by which kernels are
// told what to do, whose names must be short. Every process of a sandbox carries
// this path, and its box's id.
func (d *Driver) kernels() string { return filepath.Join("/run/dormouse", d.opts.Instance) }

// newBox names a place for a sandbox that nobody has yet.
func (d *Driver) newBox() box {
	id := "sbx_" + strings.ToLower(rand.Text()[:16])
	return box{id: id, dir: filepath.Join(d.opts.Dir, boxesDir, id)}
}

// make makes the place. The secret is what its runner proves itself with: kept
// here, and once where the runner finds it.
func (b box) make(secret string) error {
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

// makeSlot makes the directory in which the files of a session are mounted. What is
// mounted there later is seen inside: it has peers of its own. The slot itself is a
// file system that nobody can write to, so that nothing inside can put anything
// between the host and what it mounts.
func (b box) makeSlot() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := mountAt("tmpfs", b.slot(), "tmpfs", flags, "mode=700,size=64k,nr_inodes=16"); err != nil {
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

// slotDirs are where the workspace, the home and /tmp are mounted.
var slotDirs = []string{"ws", "home", "tmp"}

// writeSecret puts the secret in both places.
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

// note leaves a mark in the box for whoever comes after a server that ends.
func (b box) note(mark string) error { return os.WriteFile(mark, nil, 0o600) }

func (b box) noted(mark string) bool {
	_, err := os.Stat(mark)
	return !errors.Is(err, fs.ErrNotExist)
}

func (b box) forget(mark string) error {
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fill mounts the files of a session in the slot.
func (b box) fill(v volume, w sandbox.Workspace) error {
	if err := v.mountWorkspace(w, filepath.Join(b.slot(), "ws")); err != nil {
		return err
	}
	for dir, files := range map[string]beneath.Tree{"home": v.home(), "tmp": v.tmp()} {
		if err := unix.Mount(files.Host(), filepath.Join(b.slot(), dir), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// filled reports whether all files of a session are mounted in the slot.
func (b box) filled() (bool, error) {
	there, err := mountsUnder(b.slot())
	for _, dir := range slotDirs {
		if !slices.Contains(there, filepath.Join(b.slot(), dir)) {
			return false, err
		}
	}
	return true, err
}

// escape spells a path as an overlay's options want it.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, ",", `\,`, ":", `\:`).Replace(path)
}

// remove takes away what a sandbox that has ended had. A link that has lost its
// runner and does not know yet that it is dead may put its socket back meanwhile.
func (b box) remove(ctx context.Context) error {
	if err := unmountUnder(b.dir); err != nil {
		return err
	}
	for {
		err := os.RemoveAll(b.dir)
		if !errors.Is(err, unix.ENOTEMPTY) || sleep.For(ctx, time.Millisecond) != nil {
			return err
		}
	}
}

// record says which sandbox a session has, and how it came to be.
type record struct {
	Box        string `json:"box"`
	Generation uint64 `json:"generation"`
	// Started is set once the runner has answered.
	Started bool `json:"started"`
	// Kept and Lost are what became of the processes of the generation before.
	Kept bool   `json:"kept,omitempty"`
	Lost string `json:"lost,omitempty"`
	// Made is what it is made of. Records from before it was noted have none.
	Made *made `json:"made,omitempty"`
	// Workspace is the number of the one it has.
	Workspace uint64 `json:"workspace,omitempty"`
	// Layout says what the sandbox is shown of the host, and how its runner is
	// spoken to. One of another layout is not reached any more.
	Layout int `json:"layout,omitempty"`
}

// layout is that of the sandboxes which this version makes.
const layout = 1

// madeOf is what the sandbox in a box was made of, as its session's record says. Of
// one that no record tells of nothing is let out.
func (d *Driver) madeOf(r *record, b box) made {
	switch {
	case r == nil || r.Box != b.id:
		m := d.usual
		m.Network = false
		return m
	case r.Made == nil:
		return d.usual
	}
	return *r.Made
}

func (v volume) recordFile() string { return filepath.Join(v.dir, "box.json") }

// readRecord returns the sandbox that a session has, nil if it has none.
func (v volume) readRecord() (*record, error) {
	raw, err := os.ReadFile(v.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it has none
	}
	if err != nil {
		return nil, fmt.Errorf("read which sandbox there is: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, nil //nolint:nilerr,nilnil // torn by the machine's own end, which ended every sandbox
	}
	return &r, nil
}

func (v volume) writeRecord(r record) error {
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

// dropRecord forgets that the session has the sandbox in a box, if it has.
func (v volume) dropRecord(b box) error {
	if r, err := v.readRecord(); err != nil || r == nil || r.Box != b.id {
		return err
	}
	return os.Remove(v.recordFile())
}

// lock keeps everyone else from creating, attaching to or ending a sandbox of
// this session.
func (v volume) lock(ctx context.Context) (unlock func(), err error) { return dirlock.Lock(ctx, v.dir) }
