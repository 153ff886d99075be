//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
)

// installWithin bounds how long one package manager may take.
const installWithin = 10 * time.Minute

// install adds packages to what a sandbox is made of: those that the session had
// before, those that another session has, or new ones. What cannot be installed is
// missing, and the session goes on without it; a sandbox that is made an hour later
// tries again. Only an end of ctx is an error.
func (d *Driver) install(ctx context.Context, spec sandbox.Spec, m made) (made, error) {
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
	m.Stock, m.Missing = name, missing
	return m, nil
}

// installed returns the stock that has a session's packages, and what is missing
// from it.
func (d *Driver) installed(ctx context.Context, spec sandbox.Spec, m made) (name, missing string, err error) {
	if !m.Network || d.opts.Outlet == nil {
		return "", "", errors.New("the network of this server's sandboxes is off")
	}
	key, err := stockKey(m, spec.Environment.Packages)
	if err != nil {
		return "", "", err
	}
	had, _ := os.ReadFile(d.session(spec.Fence.Session).packagesNote()) // a session that is new has none
	if strings.HasPrefix(string(had), key+"/") {
		if f := d.use(string(had)); f != nil {
			return string(had), f.Missing, nil
		}
	}
	dir := filepath.Join(d.path(stocksDir), key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	unlock, err := dirlock.Lock(ctx, dir) // one session installs, and the others wait for it
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if l, at := d.current(key); l != nil && time.Since(at) < stockFresh {
		return l.name, "", nil
	}
	if err := d.clearUnfinished(ctx, dir); err != nil {
		return "", "", err
	}
	id := strings.ToLower(rand.Text()[:16])
	l, err := d.stockOf(key + "/" + id)
	if err != nil {
		return "", "", err
	}
	missing, err = d.makeStock(ctx, l, spec, m)
	if err != nil {
		return "", "", errors.Join(err, l.remove())
	}
	if missing == "" {
		err = atomicfile.Write(filepath.Join(dir, currentNote), []byte(id), 0o600)
	}
	return l.name, missing, err
}

// clearUnfinished ends and removes what servers that were killed began. Nobody
// else is at it.
func (d *Driver) clearUnfinished(ctx context.Context, dir string) error {
	begun, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range begun {
		l, err := d.stockOf(filepath.Base(dir) + "/" + e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		if f, err := l.fact(); err != nil || f != nil {
			continue
		}
		if id, err := os.ReadFile(filepath.Join(l.Dir, builderNote)); err == nil {
			if b, err := d.boxOf(string(id)); err == nil {
				if err := d.end(ctx, b, d.noSession()); err != nil {
					return err
				}
			}
		}
		if err := l.remove(); err != nil {
			return err
		}
	}
	return nil
}

// builderWithin is how long a sandbox that has installed packages may take to end:
// they are of use only then, and a busy machine is slow.
const builderWithin = time.Minute

// makeStock installs packages in a sandbox of its own, which has nothing of the
// session, and reaches only where packages come from if the session is limited.
func (d *Driver) makeStock(ctx context.Context, l stock, spec sandbox.Spec, m made) (missing string, err error) {
	m.Stock, m.build = l.name, true
	if m.Limited != nil {
		m.Limited = &limited{PackageManagers: true}
	}
	b := d.newBox()
	held, err := hold(b)
	if err != nil {
		return "", err
	}
	ended := func() error {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), builderWithin)
		defer cancel()
		_ = d.cpu.Group(b.id).SetWeight(cgroup.Foreground) // it takes processors to end, too
		return d.end(undo, b, d.noSession())
	}
	defer func() {
		err = errors.Join(err, ended(), os.Remove(b.hold()), held.Close())
	}()
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(l.Dir, builderNote), []byte(b.id), 0o600); err != nil {
		return "", err
	}
	if err := errors.Join(d.volumes.Open(l.Volume, b.ahead(), m.Limits), l.mountOver(m.below())); err != nil {
		return "", err
	}
	if m.Image == "" && len(m.Host) > 0 && len(spec.Environment.Packages.Apt) > 0 {
		if err := seedApt(l.at(0)); err != nil {
			return "", err
		}
	}
	missing, err = d.runSteps(ctx, l, b, spec, m)
	if err == nil {
		err = ended() // nothing in it writes any more
	}
	for _, left := range []string{"home", "tmp", "base", "upper", "work"} { // caches, and what was a workspace
		if err == nil {
			err = beneath.At(l.Path(left)).Remove()
		}
	}
	if err == nil {
		err = l.Sync()
	}
	if err == nil {
		err = d.volumes.Close(l.Volume)
	}
	if err == nil {
		err = l.seal(stockFact{Packages: spec.Environment.Packages, Missing: missing})
	}
	return missing, err
}

// runSteps has each package manager install what is its own. One that fails keeps
// the others from nothing.
func (d *Driver) runSteps(ctx context.Context, l stock, b box, spec sandbox.Spec, m made) (missing string, err error) {
	k, start, err := d.ready(ctx, l.Volume, sandbox.Workspace{}, b, nil, newSecret(), filepath.Base(d.opts.Runner), m)
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
	defer live.priority.Hold()() // somebody waits for it, however long it takes
	var failed []string
	for _, step := range packages.Steps(spec.Environment.Packages) {
		began := time.Now()
		why, err := d.runStep(ctx, live, step)
		if err != nil {
			return "", err
		}
		if why != "" {
			failed = append(failed, fmt.Sprintf("%s could not install %s: %s", step.Manager, strings.Join(step.Packages, ", "), why))
		}
		d.log.InfoContext(ctx, "packages installed", "session", session, "manager", step.Manager, "packages", step.Packages, "took", time.Since(began), "failed", why)
	}
	return strings.Join(failed, "; "), nil
}

// runStep says why a package manager failed, if it did.
func (d *Driver) runStep(ctx context.Context, live *live, step packages.Step) (why string, err error) {
	var script strings.Builder
	if d.opts.PackageEnv != nil {
		for _, v := range d.opts.PackageEnv() {
			name, value, _ := strings.Cut(v, "=")
			fmt.Fprintf(&script, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
		}
	}
	script.WriteString("cd /tmp\n(\n" + step.Command + "\n)\nended=$?\nsync\nexit $ended\n")
	call := runner.Call{Op: dormouse.OpID("op_" + step.Manager), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: script.String(), Timeout: installWithin}}
	res, err := live.Run(ctx, call, func() {}, nil)
	switch {
	case err != nil:
		return "", err
	case res.TimedOut:
		return fmt.Sprintf("it took longer than %s", installWithin), nil
	case res.Error != "":
		return res.Error, nil
	case res.Exit != 0:
		return fmt.Sprintf("exit %d: %s", res.Exit, lastWords(res.Output)), nil
	}
	return "", nil
}

// lastWords is the end of what a command printed, on one line.
func lastWords(out []byte) string {
	const most, lines = 600, 4
	out = bytes.TrimSpace(out)
	all := strings.Split(string(out[max(0, len(out)-most):]), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.Join(all[max(0, len(all)-lines):], " / "))
}
