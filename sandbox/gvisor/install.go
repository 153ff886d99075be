//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// installWithin bounds how long one package manager may take.
const installWithin = 10 * time.Minute

// install adds packages to the spec of a sandbox: the layer that the session had before, the
// layer of another session with the same packages, or a new one. Packages that cannot be
// installed are missing, and the session goes on without them; a sandbox that is made an
// hour later tries again. Only an end of ctx is an error.
func (d *Driver) install(ctx context.Context, spec sandbox.Spec, m boxSpec) (boxSpec, error) {
	p := spec.Environment.Packages
	if p.IsZero() {
		return m, nil
	}
	name, missing, err := d.installed(ctx, spec, m)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return m, fmt.Errorf("install packages: %w", err)
	default:
		d.log.WarnContext(ctx, "packages not installed", "session", spec.Fence.Session, "error", err)
		missing = "packages could not be installed: " + err.Error()
	}
	m.PackageLayer, m.Missing = name, missing
	return m, nil
}

// installed returns the layer that has a session's packages, and what is missing from it.
func (d *Driver) installed(ctx context.Context, spec sandbox.Spec, m boxSpec) (name, missing string, err error) {
	if !m.Network || d.opts.ServeEgress == nil {
		return "", "", errors.New("the network of this server's sandboxes is off")
	}
	key, err := packageKey(m, spec.Environment.Packages)
	if err != nil {
		return "", "", err
	}
	store := d.packages()
	had, _ := os.ReadFile(d.session(spec.Fence.Session).packagesNote()) // a new session has none
	if strings.HasPrefix(string(had), key+"/") {
		if is := store.Use(string(had)); is != nil {
			return string(had), is.Missing, nil
		}
	}
	dir := store.KeyDir(key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	unlock, err := dirlock.Lock(ctx, dir) // one session installs, and the others wait for it
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if l := store.Current(key); l != nil {
		return l.Name, "", nil
	}
	if err := d.removeUnfinished(ctx, key); err != nil {
		return "", "", err
	}
	fresh, err := store.New(key)
	if err != nil {
		return "", "", err
	}
	missing, err = d.buildLayer(ctx, packageLayer{Layer: fresh, volume: volume.Volume{Dir: fresh.Dir}}, spec, m)
	if err != nil {
		return "", "", errors.Join(err, removeLayer(fresh))
	}
	if missing == "" {
		err = store.SetCurrent(fresh)
	}
	return fresh.Name, missing, err
}

// removeUnfinished ends and removes the layers that servers were making when they were
// killed. The key is locked.
func (d *Driver) removeUnfinished(ctx context.Context, key string) error {
	left, err := d.packages().Unfinished(key)
	if err != nil {
		return err
	}
	for _, l := range left {
		if b, err := d.boxOf(l.Builder()); err == nil {
			if err := d.end(ctx, b, d.noSession()); err != nil {
				return err
			}
		}
		if err := removeLayer(l); err != nil {
			return err
		}
	}
	return nil
}

// builderWithin is how long the sandbox that has installed packages may take to end. They
// can be used only then, and a busy machine is slow.
const builderWithin = time.Minute

// buildLayer installs packages in a sandbox of its own, which has nothing of the session,
// and reaches only the sources of packages if the session's network is limited.
func (d *Driver) buildLayer(ctx context.Context, l packageLayer, spec sandbox.Spec, m boxSpec) (missing string, err error) {
	m.PackageLayer, m.build = l.Name, true
	if m.Limited != nil {
		m.Limited = &limited{PackageManagers: true}
	}
	b := d.newBox()
	held, err := holdBox(b)
	if err != nil {
		return "", err
	}
	ended := func() error {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), builderWithin)
		defer cancel()
		_ = d.cpu.Group(b.id).SetWeight(cgroup.Foreground) // ending takes CPU, too
		return d.end(undo, b, d.noSession())
	}
	defer func() {
		err = errors.Join(err, ended(), os.Remove(b.holdFile()), held.Close())
	}()
	if err := l.Begin(b.id); err != nil {
		return "", err
	}
	if err := errors.Join(d.volumes.Open(l.volume, b.ahead(), m.Limits), l.mountWritable(m.lowers())); err != nil {
		return "", err
	}
	if m.Image == "" && len(m.Host) > 0 && len(spec.Environment.Packages.Apt) > 0 {
		if err := packages.SeedApt(l.at(0)); err != nil {
			return "", err
		}
	}
	missing, err = d.runSteps(ctx, l, b, spec, m)
	if err == nil {
		err = ended() // nothing in it writes any more
	}
	for _, dir := range []string{"home", "tmp", "base", "upper", "work"} { // caches and the workspace of the builder
		if err == nil {
			err = beneath.At(l.volume.Path(dir)).Remove()
		}
	}
	if err == nil {
		err = l.volume.Sync()
	}
	if err == nil {
		err = d.volumes.Close(l.volume)
	}
	if err == nil {
		err = l.Seal(packages.Manifest{Packages: spec.Environment.Packages, Missing: missing})
	}
	return missing, err
}

// runSteps has each package manager install its packages. One that fails does not keep the
// others from installing theirs.
func (d *Driver) runSteps(ctx context.Context, l packageLayer, b box, spec sandbox.Spec, m boxSpec) (missing string, err error) {
	k, start, err := d.prepareBox(ctx, l.volume, sandbox.Workspace{}, b, nil, newSecret(), filepath.Base(d.opts.Runner), m)
	if err != nil {
		return "", err
	}
	session := spec.Fence.Session
	f := runner.Fence{Session: session, Generation: 1, Epoch: 1}
	live, err := d.open(ctx, handle{Session: session, Generation: f.Generation, Box: b.id}, b, f, k, m, start)
	if err != nil {
		return "", err
	}
	defer func() { _ = live.Close() }()
	defer live.priority.Hold()() // the session waits for it, however long it takes
	var failed []string
	for _, step := range packages.Steps(spec.Environment.Packages) {
		began := time.Now()
		why, err := d.runStep(ctx, live, step)
		if err != nil {
			return "", err
		}
		if why != "" {
			failed = append(failed, step.Failed(why))
		}
		d.log.InfoContext(ctx, "packages installed", "session", session, "manager", step.Manager, "packages", step.Packages, "took", time.Since(began), "failed", why)
	}
	return strings.Join(failed, "; "), nil
}

// runStep says why a package manager failed, if it did.
func (d *Driver) runStep(ctx context.Context, live *live, step packages.Step) (why string, err error) {
	var env []string
	if d.opts.PackageEnv != nil {
		env = d.opts.PackageEnv()
	}
	call := runner.Call{Op: dormouse.OpID("op_" + step.Manager), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: step.Script(env), Timeout: installWithin}}
	res, err := live.Run(ctx, call, func() {}, nil)
	switch {
	case err != nil:
		return "", err
	case res.TimedOut:
		return fmt.Sprintf("it took longer than %s", installWithin), nil
	case res.Error != "":
		return res.Error, nil
	case res.Exit != 0:
		return packages.ExitMessage(res.Exit, res.Output), nil
	}
	return "", nil
}
