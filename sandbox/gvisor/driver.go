//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// Driver creates sandboxes with gVisor.
type Driver struct {
	opts     Options
	log      *slog.Logger
	conf     *config.Config
	defaults boxSpec                 // the spec of an empty environment
	host     func() (boxSpec, error) // the spec with this machine's programs, created on first need
	pool     pool
	cpu      *cgroup.Scheduler
	egress   egressSockets
	volumes  *volume.Store
	cleanups sync.WaitGroup // old workspaces and stopped sandboxes are being removed
	lock     *os.File       // held by every server that uses the directory
}

var (
	_ sandbox.Driver     = (*Driver)(nil)
	_ sandbox.Persistent = (*Driver)(nil)
)

// New returns a driver that keeps everything under o.Dir. From then on the standard
// streams of this process are the null device: a kernel inherits them.
func New(o Options) (*Driver, error) {
	if o.Dir == "" || o.Instance == "" || strings.ContainsAny(o.Instance, "/\x00") {
		return nil, fmt.Errorf("gVisor sandboxes need a directory and the name of an instance: %w", dormouse.ErrInvalid)
	}
	const longest = 48 // or the name of a kernel's socket is too long
	if len(o.Instance) > longest {
		return nil, fmt.Errorf("the name of an instance has at most %d bytes: %w", longest, dormouse.ErrInvalid)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("gVisor sandboxes need root, to mount workspaces and to limit what a sandbox takes: " +
			"start the server as root, or with --sandbox local, which isolates nothing")
	}
	for _, path := range []*string{&o.Dir, &o.Runner} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("open gVisor sandboxes: %w", err)
		}
		*path = abs
	}
	if at, err := os.Stat(o.Runner); err != nil || !at.Mode().IsRegular() || at.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("open gVisor sandboxes: %s is no runner: %w", o.Runner, errors.Join(dormouse.ErrInvalid, err))
	}
	d := &Driver{opts: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("open gVisor sandboxes: %w", err)
	}
	d.cpu.Start()
	d.egress.boxes, d.egress.serve, d.egress.log = d.path(boxesDir), d.opts.ServeEgress, d.log
	d.egress.start()
	if o.Spares > 0 {
		d.fillPool(o.Spares)
	}
	return d, nil
}

func (d *Driver) prepare() (err error) {
	for _, dir := range []string{d.kernels(), d.path(boxesDir), d.path(sessionsDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// The kernel lists mounts and loop devices by paths without symlinks.
	if d.opts.Dir, err = filepath.EvalSymlinks(d.opts.Dir); err != nil {
		return err
	}
	if d.lock, err = os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := flock.Lock(d.lock, unix.LOCK_SH); err != nil {
		return err
	}
	// Mounts below must not propagate to other mount namespaces, which would keep them busy.
	there, err := mount.Is(d.opts.Dir)
	if err == nil && !there {
		err = mount.Bind(d.opts.Dir, d.opts.Dir, unix.MS_PRIVATE)
	}
	if err != nil {
		return err
	}
	if d.conf, err = configure(d.kernels(), d.opts.Program, rootAccess(boxSpec{Limits: d.opts.Limits})); err != nil {
		return err
	}
	d.cpu = cgroup.NewScheduler(d.opts.Instance, d.log)
	if err := d.releaseCPUs(); err != nil {
		return err
	}
	d.host = sync.OnceValues(d.hostSpec)
	if d.defaults, err = d.defaultSpec(); err != nil {
		return err
	}
	d.volumes, err = volume.NewStore(d.opts.Dir, d.opts.Limits, d.log)
	return err
}

func (d *Driver) path(name string) string { return filepath.Join(d.opts.Dir, name) }

// KeepsWorkspace reports that files outlive every sandbox.
func (d *Driver) KeepsWorkspace() bool { return true }

// handle finds a sandbox again.
type handle struct {
	Session    dormouse.SessionID `json:"session"`
	Generation uint64             `json:"generation"`
	Box        string             `json:"box"`
}

func (h handle) String() string { return fmt.Sprintf("sandbox %d of %s", h.Generation, h.Session) }

func (h handle) encode() sandbox.Handle {
	raw, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("handle of %s: %v", h, err)) // three plain fields
	}
	return raw
}

func (d *Driver) find(raw sandbox.Handle) (handle, box, error) {
	var h handle
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, box{}, fmt.Errorf("read a sandbox's handle: %w", errors.Join(dormouse.ErrInvalid, err))
	}
	if err := (runner.Fence{Session: h.Session, Generation: h.Generation}).Validate(); err != nil {
		return h, box{}, err
	}
	b, err := d.boxOf(h.Box)
	return h, b, err
}

// Create starts the sandbox of a session's generation. One that an earlier call started,
// and that answers, is taken over: its processes must neither be lost nor be started
// twice.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := spec.Fence.Validate(); err != nil {
		return nil, err
	}
	l, err := d.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create sandbox %d of %s: %w", spec.Fence.Generation, spec.Fence.Session, err)
	}
	return l, nil
}

// Attach reaches the sandbox that a handle names.
func (d *Driver) Attach(ctx context.Context, raw sandbox.Handle, f runner.Fence) (sandbox.Sandbox, error) {
	h, b, err := d.find(raw)
	if err != nil {
		return nil, err
	}
	if h.Session != f.Session || h.Generation != f.Generation {
		return nil, fmt.Errorf("attach to %s: %w", h, runner.ErrForeign)
	}
	unlock, err := d.session(h.Session).Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := d.attach(ctx, h, b, f)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	return l, nil
}

func (d *Driver) attach(ctx context.Context, h handle, b box, f runner.Fence) (*live, error) {
	k, err := findSentry(d.conf, b.id)
	if err != nil {
		return nil, err
	}
	r, err := d.session(h.Session).readRecord()
	if err != nil {
		return nil, err
	}
	m := d.specOf(r, b)
	if k.alive() && r != nil && r.Box == b.id && r.Layout != layout {
		if err := d.end(ctx, b, d.session(h.Session)); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it was started by another version of this program: %w", sandbox.ErrGone)
	}
	if k.alive() {
		if err := d.session(h.Session).ensureMounted(); err != nil {
			return nil, err
		}
		d.volumes.BackRunning(d.session(h.Session).Volume)
		l, err := d.open(ctx, h, b, f, k, m, func() error {
			if err := k.resume(); err != nil { // a server was killed while it had it paused
				return err
			}
			return d.resumeLeft(ctx, k, b)
		})
		if err == nil {
			if err = d.clearPaused(b); err != nil {
				_ = l.Close()
			}
		}
		if err == nil {
			return l, nil
		}
		if again, dead := findSentry(d.conf, b.id); dead != nil || again.alive() {
			return nil, errors.Join(err, dead)
		}
	}
	starved := d.outOfMemory(b, m, false)
	if err := d.end(ctx, b, d.session(h.Session)); err != nil {
		return nil, err
	}
	if starved != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrGone, starved)
	}
	return nil, sandbox.ErrGone
}

// Stop ends a sandbox and keeps the files of its session. It returns once the kernel is
// dead; the rest is cleaned up in the background. A server that is killed before leaves a
// box without an owner for the next sweep.
func (d *Driver) Stop(ctx context.Context, raw sandbox.Handle, f runner.Fence) error {
	h, b, err := d.find(raw)
	if err != nil {
		return err
	}
	if h.Session != f.Session || h.Generation != f.Generation {
		return fmt.Errorf("stop %s: %w", h, runner.ErrForeign)
	}
	v := d.session(h.Session)
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	crash.At(crash.SandboxLocked)
	if err := b.fence().Check(f); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	// Ending takes CPU, too, and the caller waits for it.
	if err := errors.Join(d.cpu.Group(b.id).SetWeight(cgroup.Foreground), d.endKernel(ctx, b)); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	if err := errors.Join(v.discardUnfinished(), v.dropRecord(b)); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	ctx, done := fencing.Outlive(ctx)
	d.cleanups.Go(func() {
		defer done()
		ctx, cancel := context.WithTimeout(ctx, undoWithin)
		defer cancel()
		if err := d.cleanUp(ctx, b, v); err != nil {
			d.log.WarnContext(ctx, "stopped sandbox not cleared", "session", h.Session, "generation", h.Generation, "error", err)
		}
	})
	return nil
}

// cleanUp removes the box of a dead kernel, and closes its session's volume if no other
// sandbox has it by then.
func (d *Driver) cleanUp(ctx context.Context, b box, v sessionDir) error {
	if err := errors.Join(d.volumes.DropAhead(b.ahead()), d.cpu.Group(b.id).Remove(), b.remove(ctx)); err != nil {
		return err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	crash.At(crash.SandboxClearing)
	if r, err := v.readRecord(); err != nil || r != nil {
		return err
	}
	return d.volumes.Close(v.Volume)
}

// end ends whatever is left of the sandbox in a box and removes the box. It returns nil
// only when that is certain.
func (d *Driver) end(ctx context.Context, b box, v sessionDir) error {
	if err := d.endKernel(ctx, b); err != nil {
		return err
	}
	if err := d.volumes.DropAhead(b.ahead()); err != nil {
		return err
	}
	if err := d.cpu.Group(b.id).Remove(); err != nil {
		return err
	}
	if err := b.remove(ctx); err != nil { // after everything that is found by it
		return err
	}
	if r, err := v.readRecord(); err != nil || r == nil || r.Box != b.id {
		return err
	}
	if err := errors.Join(v.discardUnfinished(), d.volumes.Close(v.Volume)); err != nil {
		return err
	}
	return os.Remove(v.recordFile())
}

// endKernel ends what runs in a box. It returns nil only when that is certain.
func (d *Driver) endKernel(ctx context.Context, b box) error {
	k, err := findSentry(d.conf, b.id)
	switch {
	case err != nil:
		return err
	case k != nil:
		return errors.Join(d.cpu.Group(b.id).Kill(), k.destroy(ctx))
	case len(stateFiles(d.kernels(), b.id)) > 0: // its server was killed before it had written the state file
		return endUnrecorded(d.kernels(), b.id)
	}
	return nil
}

// Remove ends whatever of a session still runs and removes its files.
func (d *Driver) Remove(ctx context.Context, f runner.Fence) error {
	id := f.Session
	if err := id.Validate(); err != nil {
		return err
	}
	v := d.session(id)
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	crash.At(crash.SandboxLocked)
	r, err := v.readRecord()
	if err != nil {
		return err
	}
	if r != nil {
		b, err := d.boxOf(r.Box)
		if err == nil {
			err = b.refuses(r.Generation, f)
		}
		if err == nil {
			err = d.end(ctx, b, v)
		}
		if err != nil {
			return fmt.Errorf("remove sandbox of %s: %w", id, err)
		}
	}
	if err := d.volumes.Discard(v.Volume); err != nil {
		return fmt.Errorf("remove files of %s: %w", id, err)
	}
	if err := errors.Join(beneath.At(v.Dir).Remove(), beneath.At(d.branchDir(id).Dir).Remove()); err != nil {
		return fmt.Errorf("remove files of %s: %w", id, err)
	}
	v.ForgetRemoved()
	return nil
}
