package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/runner/proctree"
	"github.com/dormouse-run/dormouse/sandbox"
)

const (
	// readyTimeout bounds how long a runner that lives may take to answer.
	readyTimeout = 15 * time.Second
	// stopTimeout is how long a runner may take to end its processes when told to.
	stopTimeout = 5 * time.Second
	// cleanupTimeout bounds the clearing away of what could not be finished.
	cleanupTimeout = 10 * time.Second

	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// mark is the variable that every process of a sandbox carries.
	mark = "DORMOUSE_SANDBOX"
)

// Driver makes sandboxes out of ordinary processes.
type Driver struct {
	opts    Options
	log     *slog.Logger
	crashed atomic.Bool // a crash point was handed to a runner
}

var (
	_ sandbox.Driver     = (*Driver)(nil)
	_ sandbox.Persistent = (*Driver)(nil)
)

// New returns a driver that keeps everything under o.Dir.
func New(o Options) (*Driver, error) {
	if o.Dir == "" || o.Instance == "" || strings.ContainsAny(o.Instance, "/\x00") {
		return nil, fmt.Errorf("local sandboxes need a directory and the name of an instance: %w", dormouse.ErrInvalid)
	}
	for _, path := range []*string{&o.Dir, &o.Runner} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("open local sandboxes: %w", err)
		}
		*path = abs
	}
	if at, err := os.Stat(o.Runner); err != nil || !at.Mode().IsRegular() || at.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("open local sandboxes: %s is no runner: %w", o.Runner, errors.Join(dormouse.ErrInvalid, err))
	}
	for _, dir := range []string{workspaces, homes, sandboxes} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("open local sandboxes: %w", err)
		}
	}
	o.SearchPath = cmp.Or(o.SearchPath, usualPath)
	d := &Driver{opts: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	d.log.Warn("local sandboxes isolate nothing: agents act with the rights of this server")
	return d, nil
}

// KeepsWorkspace reports that files outlive every sandbox.
func (d *Driver) KeepsWorkspace() bool { return true }

// Workspace returns the directory of a session's files.
func (d *Driver) Workspace(id dormouse.SessionID) (string, error) {
	f := d.filesOf(id)
	n, err := f.latest().Number()
	return f.at(n), err
}

// Create starts the runner of a session's generation, after ending whatever an
// earlier one left.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	p, err := d.placeOf(spec.Fence.Session, spec.Fence.Generation)
	if err != nil {
		return nil, err
	}
	b, err := d.create(ctx, p, spec)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", p, err)
	}
	return b, nil
}

func (d *Driver) create(ctx context.Context, p place, spec sandbox.Spec) (_ *box, err error) {
	f, has := spec.Fence, d.filesOf(p.session)
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o700); err != nil {
		return nil, err
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := p.fence().Check(f); err != nil {
		return nil, err
	}
	if err := d.end(ctx, p); err != nil {
		return nil, err
	}
	if p.workspace, err = has.ready(ctx, spec.Workspace); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	pid, err := d.launch(p)
	if err != nil {
		return nil, err
	}
	w, err := pidfd.Open(pid)
	if err == nil {
		var b *box
		if b, err = d.open(ctx, p, f, w); err == nil {
			if err = has.latest().Record(spec.Workspace.Number); err == nil {
				d.removeOldWorkspaces(ctx, has, spec.Workspace.Number)
				return b, nil
			}
			err = errors.Join(err, b.Close())
		}
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return nil, errors.Join(err, p.logTail(), d.end(undo, p))
}

// removeOldWorkspaces removes the workspaces before the one that a sandbox has.
func (d *Driver) removeOldWorkspaces(ctx context.Context, has files, number uint64) {
	if err := has.remove(func(n uint64) bool { return n < number }); err != nil {
		d.log.WarnContext(ctx, "old workspace not removed", "session", has.session, "error", err)
	}
}

// Attach reaches the sandbox that h names.
func (d *Driver) Attach(ctx context.Context, h sandbox.Handle, f runner.Fence) (sandbox.Sandbox, error) {
	p, err := d.find(h)
	if err != nil {
		return nil, err
	}
	if p.session != f.Session || p.generation != f.Generation {
		return nil, fmt.Errorf("attach to %s: %w", p, runner.ErrForeign)
	}
	b, err := d.attach(ctx, p, f)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", p, err)
	}
	return b, nil
}

func (d *Driver) attach(ctx context.Context, p place, f runner.Fence) (*box, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	w, err := p.openRunner()
	if err != nil {
		return nil, err
	}
	if w != nil {
		b, err := d.open(ctx, p, f, w)
		if err == nil {
			return b, nil
		}
		if pid, dead := inside.LivePID(p.dir); dead != nil || pid != 0 {
			return nil, errors.Join(err, dead)
		}
	}
	if err := d.end(ctx, p); err != nil {
		return nil, err
	}
	return nil, sandbox.ErrGone
}

// Stop ends a sandbox. Its workspace stays; the runner's own state is removed.
func (d *Driver) Stop(ctx context.Context, h sandbox.Handle, f runner.Fence) error {
	p, err := d.find(h)
	if err != nil {
		return err
	}
	if p.session != f.Session || p.generation != f.Generation {
		return fmt.Errorf("stop %s: %w", p, runner.ErrForeign)
	}
	return d.stop(ctx, p, &f)
}

// stop ends a sandbox, under a fence if it is one that a session may have.
func (d *Driver) stop(ctx context.Context, p place, f *runner.Fence) error {
	unlock, err := p.lock(ctx)
	if err == nil {
		defer unlock()
		crash.At(crash.SandboxLocked)
		if f != nil {
			err = p.checkFence(*f)
		}
	}
	if err == nil {
		err = d.end(ctx, p)
	}
	if err == nil {
		err = p.remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", p, err)
	}
	return nil
}

// Remove ends whatever of a session still runs and removes its files.
func (d *Driver) Remove(ctx context.Context, f runner.Fence) error {
	id := f.Session
	if err := id.Validate(); err != nil {
		return err
	}
	found, err := d.listSandboxes()
	if err != nil {
		return fmt.Errorf("remove sandboxes of %s: %w", id, err)
	}
	for _, p := range found {
		if p.session != id {
			continue
		}
		if err := d.stop(ctx, p, &f); err != nil {
			return err
		}
	}
	if err := d.filesOf(id).remove(func(uint64) bool { return true }); err != nil {
		return fmt.Errorf("remove files of %s: %w", id, err)
	}
	for _, dir := range []string{sandboxes, homes} {
		if err := os.RemoveAll(filepath.Join(d.opts.Dir, dir, string(id))); err != nil {
			return fmt.Errorf("remove files of %s: %w", id, err)
		}
	}
	return nil
}

// Sweep stops the sandboxes of this instance that owned does not vouch for,
// including those that other servers started.
func (d *Driver) Sweep(ctx context.Context, owned func(dormouse.SessionID) sandbox.Ownership) error {
	found, err := d.listSandboxes()
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	var errs []error
	for _, p := range found {
		if o := owned(p.session); o.Unsure || o.Generation == p.generation {
			continue
		}
		if err := d.stop(ctx, p, nil); err != nil {
			errs = append(errs, err)
			continue
		}
		d.log.InfoContext(ctx, "stray sandbox stopped", "session", p.session, "generation", p.generation)
	}
	notes, err := filepath.Glob(filepath.Join(d.opts.Dir, sandboxes, "*"))
	for _, dir := range notes { // of servers that were killed while they wrote one
		errs = append(errs, atomicfile.Sweep(dir))
	}
	return errors.Join(append(errs, err)...)
}

// listSandboxes finds every sandbox that has a directory or a process.
func (d *Driver) listSandboxes() (map[string]place, error) {
	found := make(map[string]place)
	note := func(session, generation string) {
		n, err := strconv.ParseUint(generation, 10, 64)
		if err != nil {
			return
		}
		if p, err := d.placeOf(dormouse.SessionID(session), n); err == nil {
			found[p.mark] = p
		}
	}
	dirs, err := fs.Glob(os.DirFS(filepath.Join(d.opts.Dir, sandboxes)), "*/*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		session, generation, _ := strings.Cut(dir, "/")
		note(session, generation)
	}
	all, err := proctree.List()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		v, _ := p.Variable(mark)
		if rest, ok := strings.CutPrefix(v, d.opts.Instance+"/"); ok {
			session, generation, _ := strings.Cut(rest, "/")
			note(session, generation)
		}
	}
	return found, nil
}

// handle is what finds a sandbox again.
type handle struct {
	Session    dormouse.SessionID `json:"session"`
	Generation uint64             `json:"generation"`
}

func (d *Driver) find(h sandbox.Handle) (place, error) {
	var v handle
	if err := json.Unmarshal(h, &v); err != nil {
		return place{}, fmt.Errorf("read a sandbox's handle: %w", errors.Join(dormouse.ErrInvalid, err))
	}
	return d.placeOf(v.Session, v.Generation)
}

// newSecret draws what a runner proves itself with.
func newSecret() string { return rand.Text() }
