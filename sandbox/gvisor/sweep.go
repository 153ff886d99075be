//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Sweep stops the sandboxes of this instance that keep does not vouch for,
// whoever started them.
func (d *Driver) Sweep(ctx context.Context, keep func(dormouse.SessionID, uint64) bool) error {
	var errs []error
	kept := make(map[string]bool)
	sessions, err := os.ReadDir(d.path(sessionsDir))
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	for _, e := range sessions {
		b, err := d.sweepSession(ctx, dormouse.SessionID(e.Name()), keep)
		if err != nil {
			errs = append(errs, err)
		}
		kept[b] = true
	}
	strays, err := d.strays()
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	for _, b := range strays {
		if kept[b.id] {
			continue
		}
		if err := d.end(ctx, b, volume{dir: d.path("none")}); err != nil {
			errs = append(errs, fmt.Errorf("stop stray sandbox %s: %w", b.id, err))
			continue
		}
		d.log.InfoContext(ctx, "stray sandbox stopped", "sandbox", b.id)
	}
	return errors.Join(errs...)
}

// sweepSession stops the sandbox of a session unless it is vouched for, and then
// returns its box.
func (d *Driver) sweepSession(ctx context.Context, id dormouse.SessionID, keep func(dormouse.SessionID, uint64) bool) (string, error) {
	if id.Validate() != nil {
		return "", nil
	}
	v := d.volumeOf(id)
	unlock, err := v.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	r, err := v.readRecord()
	if err != nil || r == nil {
		return "", err
	}
	if keep(id, r.Generation) {
		return r.Box, nil
	}
	b, err := d.boxOf(r.Box)
	if err == nil {
		err = d.end(ctx, b, v)
	}
	if err != nil {
		return r.Box, fmt.Errorf("stop sandbox %d of %s: %w", r.Generation, id, err)
	}
	d.log.InfoContext(ctx, "stray sandbox stopped", "session", id, "generation", r.Generation)
	return "", nil
}

// strays finds every sandbox of this instance that has a directory or a kernel.
func (d *Driver) strays() ([]box, error) {
	dirs, err := filepath.Glob(d.path(boxesDir) + "/sbx_*")
	if err != nil {
		return nil, err
	}
	kernels, err := filepath.Glob(d.kernels() + "/sbx_*.state")
	if err != nil {
		return nil, err
	}
	found := make(map[string]box)
	for _, dir := range dirs {
		if b, err := d.boxOf(filepath.Base(dir)); err == nil {
			found[b.id] = b
		}
	}
	for _, file := range kernels {
		id, _, _ := strings.Cut(filepath.Base(file), "_sandbox:")
		if b, err := d.boxOf(id); err == nil {
			found[b.id] = b
		}
	}
	all := make([]box, 0, len(found))
	for _, b := range found {
		all = append(all, b)
	}
	return all, nil
}

// Close lets go of the driver's directories. Sandboxes that live on keep theirs.
func (d *Driver) Close() error {
	for _, dir := range []string{boxesDir, sessionsDir} {
		at := d.path(dir)
		below, err := mountsUnder(at)
		if err != nil {
			return err
		}
		if len(below) > 1 {
			continue
		}
		if err := unix.Unmount(at, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("let go of %s: %w", at, err)
		}
	}
	left, err := d.strays()
	if err != nil || len(left) > 0 {
		return err
	}
	if err := unmountUnder(d.kernels()); err != nil { // a network namespace without anything in it
		return err
	}
	return os.RemoveAll(d.kernels())
}
