package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/local"
	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

// driver is what a server needs of its sandboxes.
type driver interface {
	sandbox.Driver
	// Sweep stops what nobody vouches for.
	Sweep(ctx context.Context, owned func(dormouse.SessionID) sandbox.Owned) error
}

// The kinds of sandbox.
const (
	sandboxGVisor = "gvisor"
	sandboxLocal  = "local"
)

// openSandboxes returns the driver. It is the only place that names one.
func openSandboxes(ctx context.Context, c config, log *slog.Logger) (driver, error) {
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return nil, err
	}
	kind, err := sandboxKind(data, c.Sandbox)
	if err != nil {
		return nil, err
	}
	runner := c.Runner
	if runner == "" {
		if runner, err = placeRunner(data); err != nil {
			return nil, err
		}
	}
	if runner, err = filepath.Abs(runner); err != nil {
		return nil, err
	}
	instance, err := instanceOf(data)
	if err != nil {
		return nil, err
	}
	var d driver
	switch dir := filepath.Join(data, sandboxDir); kind {
	case sandboxGVisor:
		var root rootfs.Root
		if root, err = openImage(ctx, data, c.Image, log); err != nil {
			return nil, err
		}
		d, err = gvisor.New(gvisor.Options{
			Dir: filepath.Join(dir, sandboxGVisor), Root: root.Dir, Env: root.Env, Instance: instance, Runner: runner, Limits: c.Limits.parsed, Spares: c.Spares, Outlet: outlet(c, log), Logger: log,
		})
	default:
		d, err = local.New(local.Options{Dir: dir, Instance: instance, Runner: runner, Logger: log})
	}
	if err != nil {
		return nil, fmt.Errorf("open sandboxes: %w", err)
	}
	return d, nil
}

// openImage fetches what sandboxes start from, unless it is there.
func openImage(ctx context.Context, data, ref string, log *slog.Logger) (rootfs.Root, error) {
	if ref == "" {
		return rootfs.Root{}, nil
	}
	images, err := rootfs.Open(rootfs.Options{Dir: filepath.Join(data, "images"), Logger: log})
	if err != nil {
		return rootfs.Root{}, err
	}
	told := time.Now()
	root, err := images.Root(ctx, ref, func(p rootfs.Progress) {
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			log.InfoContext(ctx, "fetching image", "image", ref, "layer", p.Layer, "layers", p.Layers, "bytes", p.Bytes, "total", p.Total)
		}
	})
	if err != nil {
		return rootfs.Root{}, fmt.Errorf("--image %s: %w", ref, err)
	}
	return root, nil
}

// outlet is the way out of sandboxes, nil if they have none.
func outlet(c config, log *slog.Logger) func(context.Context, dormouse.SessionID, net.Listener) error {
	if !c.Network {
		return nil
	}
	allow, _ := egress.ParseAllow(c.EgressAllow) // checked with the rest of the configuration
	o := egress.Options{
		Policy: func(egress.Session) egress.Policy { return egress.Policy{Network: egress.On} }, Allow: allow, Logger: log,
	}
	if at, err := netip.ParseAddrPort(c.Listen); err == nil {
		o.Listeners = append(o.Listeners, at)
	}
	p := egress.New(o)
	return func(ctx context.Context, id dormouse.SessionID, l net.Listener) error {
		return p.Serve(ctx, l, egress.Session{ID: id})
	}
}

const sandboxDir = "sandbox"

// sandboxKind is the kind that a data directory has, or is given now. Files of
// one kind are not found by the other.
func sandboxKind(data, wanted string) (string, error) {
	has, err := kindOf(data)
	switch {
	case err != nil:
		return "", err
	case has != "" && wanted != "" && has != wanted:
		return "", usage("--sandbox is %s, but the workspaces in %s are of %s sandboxes; leave the flag out, or choose another --data", wanted, data, has)
	case has != "":
		return has, nil
	}
	kind := cmp.Or(wanted, sandboxGVisor)
	if err := os.MkdirAll(filepath.Join(data, sandboxDir), 0o700); err != nil {
		return "", fmt.Errorf("note the kind of sandboxes: %w", err)
	}
	return kind, atomicfile.Write(filepath.Join(data, sandboxDir, kindFile), []byte(kind+"\n"), 0o600)
}

const kindFile = "kind"

// kindOf is the kind of the sandboxes in a data directory, empty if it has none.
func kindOf(data string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(data, sandboxDir, kindFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, old := os.Stat(filepath.Join(data, sandboxDir, "workspaces")); old == nil {
			return sandboxLocal, nil // from before there were others
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for sandboxes: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// instanceOf names the instance that uses a directory. A copy of it elsewhere is
// another one, and leaves the sandboxes of the original alone.
func instanceOf(data string) (string, error) {
	path, err := filepath.Abs(data)
	if err != nil {
		return "", err
	}
	const enough = 16
	return string(dormouse.DigestOf([]byte(path)))[len("sha256:"):][:enough], nil
}

// sweep stops what servers before us left running and no session owns.
func (s *server) sweep(ctx context.Context) {
	err := s.driver.Sweep(ctx, func(id dormouse.SessionID) sandbox.Owned { return s.sessions.Owned(ctx, id) })
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "stray sandboxes not swept", "error", err)
	}
}
