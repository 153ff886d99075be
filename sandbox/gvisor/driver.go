//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Driver makes sandboxes with gVisor.
type Driver struct {
	opts     Options
	log      *slog.Logger
	conf     *config.Config
	usual    made                 // of which a sandbox is whose environment says nothing
	host     func() (made, error) // what there is of this machine, made on first need
	template string               // of a usual volume, empty if sizes are not limited
	pool     pool
	crowd    crowd
	outlets  outlets
	reserves reserves
	clearing sync.WaitGroup // old workspaces and stopped sandboxes are being removed
	lock     *os.File       // held by every server that uses the directory
}

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Keeper = (*Driver)(nil)
)

// New returns a driver that keeps everything under o.Dir. From then on the
// standard streams of this process are the null device: a kernel inherits them.
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
		d.reserves.end()
		return nil, fmt.Errorf("open gVisor sandboxes: %w", err)
	}
	d.crowd.begin()
	d.outlets.boxes, d.outlets.serve, d.outlets.log = d.path(boxesDir), d.opts.Outlet, d.log
	d.outlets.begin()
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
	// The kernel spells what is mounted and what is shown without links.
	if d.opts.Dir, err = filepath.EvalSymlinks(d.opts.Dir); err != nil {
		return err
	}
	if d.lock, err = os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := flock.Lock(d.lock, unix.LOCK_SH); err != nil {
		return err
	}
	// What is mounted below is nobody else's to see, or to hold on to.
	there, err := mounted(d.opts.Dir)
	if err == nil && !there {
		err = bindAt(d.opts.Dir, d.opts.Dir, unix.MS_PRIVATE)
	}
	if err != nil {
		return err
	}
	if d.conf, err = configure(d.kernels(), d.opts.Program, rootAccess(made{Limits: d.opts.Limits})); err != nil {
		return err
	}
	d.divide()
	if err := d.restAll(); err != nil {
		return err
	}
	d.host = sync.OnceValues(d.makeHost)
	if d.usual, err = d.makeUsual(); err != nil {
		return err
	}
	if err := d.reserves.begin(d.opts.Dir, d.log); err != nil {
		return err
	}
	d.template, err = d.templateName()
	if errors.Is(err, errNoVolumes) {
		d.log.Warn("the size of workspaces is not limited", "error", err)
		err = nil
	}
	if err != nil {
		return err
	}
	if err := d.makeTemplate(); err != nil && !errors.Is(err, dormouse.ErrFull) {
		return err
	}
	return nil
}

func (d *Driver) path(name string) string { return filepath.Join(d.opts.Dir, name) }

// KeepsWorkspace reports that files outlive every sandbox.
func (d *Driver) KeepsWorkspace() bool { return true }

// handle is what finds a sandbox again.
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

// Create starts the sandbox of a session's generation. One that an earlier call
// started, and that answers, is taken over: its processes must not be lost, nor
// started twice.
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
	unlock, err := d.volumeOf(h.Session).lock(ctx)
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
	r, err := d.volumeOf(h.Session).readRecord()
	if err != nil {
		return nil, err
	}
	m := d.madeOf(r, b)
	if k.alive() && r != nil && r.Box == b.id && r.Layout != layout {
		if err := d.end(ctx, b, d.volumeOf(h.Session)); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it was started by another version of this program: %w", sandbox.ErrGone)
	}
	if k.alive() {
		if err := d.volumeOf(h.Session).reach(); err != nil {
			return nil, err
		}
		d.secureRunning(d.volumeOf(h.Session))
		l, err := d.open(ctx, h, b, f, k, m, func() error {
			if err := k.resume(); err != nil { // a server ended while it looked at it
				return err
			}
			return d.goOn(ctx, k, b)
		})
		if err == nil {
			if err = d.letGo(b); err != nil {
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
	starved := d.starved(b, m, false)
	if err := d.end(ctx, b, d.volumeOf(h.Session)); err != nil {
		return nil, err
	}
	if starved != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrGone, starved)
	}
	return nil, sandbox.ErrGone
}

// Stop ends a sandbox and what runs in it. The files of its session stay. Once the
// kernel is dead, who goes on with them need not wait until all else is cleared
// away; a server that ends before leaves a box that is nobody's, for the next sweep.
func (d *Driver) Stop(ctx context.Context, raw sandbox.Handle, f runner.Fence) error {
	h, b, err := d.find(raw)
	if err != nil {
		return err
	}
	if h.Session != f.Session || h.Generation != f.Generation {
		return fmt.Errorf("stop %s: %w", h, runner.ErrForeign)
	}
	v := d.volumeOf(h.Session)
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	crash.At(crash.SandboxLocked)
	if err := b.fence().Check(f); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	// It takes processors to end, too, and somebody waits for that.
	if err := errors.Join(d.cgroupOf(b).weigh(usual), d.endKernel(ctx, b)); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	if err := errors.Join(v.giveUpWake(), v.dropRecord(b)); err != nil {
		return fmt.Errorf("stop %s: %w", h, err)
	}
	ctx, done := fencing.Outlive(ctx)
	d.clearing.Go(func() {
		defer done()
		ctx, cancel := context.WithTimeout(ctx, undoWithin)
		defer cancel()
		if err := d.clearAway(ctx, b, v); err != nil {
			d.log.WarnContext(ctx, "stopped sandbox not cleared", "session", h.Session, "generation", h.Generation, "error", err)
		}
	})
	return nil
}

// clearAway takes away the box of a dead kernel, and closes its session's volume
// if no other sandbox has it by then.
func (d *Driver) clearAway(ctx context.Context, b box, v volume) error {
	if err := errors.Join(d.dropAhead(b), b.remove(ctx), d.cgroupOf(b).remove()); err != nil {
		return err
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	crash.At(crash.SandboxClearing)
	if r, err := v.readRecord(); err != nil || r != nil {
		return err
	}
	return d.closeVolume(v)
}

// end ends the sandbox in a box, whatever is left of it, and takes it away. It
// returns nil only when that is certain.
func (d *Driver) end(ctx context.Context, b box, v volume) error {
	if err := d.endKernel(ctx, b); err != nil {
		return err
	}
	if err := d.dropAhead(b); err != nil {
		return err
	}
	if err := b.remove(ctx); err != nil {
		return err
	}
	if err := d.cgroupOf(b).remove(); err != nil {
		return err
	}
	if r, err := v.readRecord(); err != nil || r == nil || r.Box != b.id {
		return err
	}
	if err := errors.Join(v.giveUpWake(), d.closeVolume(v)); err != nil {
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
		return errors.Join(d.cgroupOf(b).kill(), k.destroy(ctx))
	case len(notesOf(d.kernels(), b.id)) > 0: // somebody ended before he had noted it
		return endTorn(d.kernels(), b.id)
	}
	return nil
}

// Remove ends whatever of a session still runs and removes its files.
func (d *Driver) Remove(ctx context.Context, f runner.Fence) error {
	id := f.Session
	if err := id.Validate(); err != nil {
		return err
	}
	v := d.volumeOf(id)
	unlock, err := v.lock(ctx)
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
	d.reserves.shut(v)
	if err := unmountUnder(v.at()); err != nil { // what is removed need not be synced
		return err
	}
	// Whatever was started while it was mounted may hold on to it, but not to its room.
	if err := os.Truncate(v.image(), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove files of %s: %w", id, err)
	}
	if err := errors.Join(beneath.At(v.dir).Remove(), beneath.At(d.legacy(id).dir).Remove()); err != nil {
		return fmt.Errorf("remove files of %s: %w", id, err)
	}
	unnoted.forget(v.dir)
	return nil
}
