//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/sandbox"
)

// lostFor is how long the files of a session that nobody knows are kept.
const lostFor = 7 * 24 * time.Hour

// Sweep stops the sandboxes of this instance that owned does not vouch for,
// whoever started them, and sets aside the files of sessions nobody knows.
func (d *Driver) Sweep(ctx context.Context, owned func(dormouse.SessionID) sandbox.Owned) error {
	var errs []error
	kept := make(map[string]bool)
	sessions, err := os.ReadDir(d.path(sessionsDir))
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	for _, e := range sessions {
		b, err := d.sweepSession(ctx, dormouse.SessionID(e.Name()), owned)
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
		if kept[b.id] || b.isSpare() || d.hasOwner(b) {
			continue
		}
		if err := d.end(ctx, b, volume{dir: d.path("none")}); err != nil {
			errs = append(errs, fmt.Errorf("stop stray sandbox %s: %w", b.id, err))
			continue
		}
		d.log.InfoContext(ctx, "stray sandbox stopped", "sandbox", b.id)
	}
	d.dropHolds()
	return errors.Join(append(errs, d.forgetLost(time.Now()), d.sweepBranches(owned, time.Now()))...)
}

// dropHolds removes what servers that ended held their spares by.
func (d *Driver) dropHolds() {
	holds, _ := filepath.Glob(d.path(boxesDir) + "/.sbx_*") // the pattern is our own
	for _, name := range holds {
		drop(name)
	}
}

// hasOwner reports whether a session has taken a box meanwhile.
func (d *Driver) hasOwner(b box) bool {
	records, err := filepath.Glob(d.path(sessionsDir) + "/*/box.json")
	if err != nil {
		return true
	}
	for _, name := range records {
		r, err := volume{dir: filepath.Dir(name)}.readRecord()
		if err != nil || r != nil && r.Box == b.id {
			return true
		}
	}
	return false
}

// sweepSession stops the sandbox of a session unless it is vouched for, and then
// returns its box.
func (d *Driver) sweepSession(ctx context.Context, id dormouse.SessionID, owned func(dormouse.SessionID) sandbox.Owned) (string, error) {
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
	if err != nil {
		return "", err
	}
	owner := owned(id)
	if r != nil {
		if owner.Unsure || owner.Generation == r.Generation {
			if r.Started {
				d.clear(ctx, v, r.Workspace)
			}
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
	}
	if owner.Known || owner.Unsure {
		return "", v.giveUpWake()
	}
	return "", d.lose(ctx, v)
}

// lose sets the files of a session aside.
func (d *Driver) lose(ctx context.Context, v volume) error {
	if err := v.close(); err != nil {
		return err
	}
	to := filepath.Join(d.path(lostDir), string(v.session)+"-"+strconv.FormatInt(time.Now().Unix(), 10))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("set aside the files of %s: %w", v.session, err)
	}
	if err := os.Rename(v.dir, to); err != nil {
		return fmt.Errorf("set aside the files of %s: %w", v.session, err)
	}
	d.log.WarnContext(ctx, "files of a session nobody knows set aside", "session", v.session, "kept_in", to, "days", int(lostFor.Hours()/24))
	return nil
}

// forgetLost removes what was set aside long enough ago.
func (d *Driver) forgetLost(now time.Time) error {
	lost, err := filepath.Glob(d.path(lostDir) + "/*-*")
	if err != nil {
		return err
	}
	for _, dir := range lost {
		at, err := strconv.ParseInt(dir[strings.LastIndexByte(dir, '-')+1:], 10, 64)
		if err != nil || now.Sub(time.Unix(at, 0)) < lostFor {
			continue
		}
		if err := beneath.At(dir).Remove(); err != nil {
			return fmt.Errorf("remove what was set aside: %w", err)
		}
	}
	return nil
}

// strays finds every sandbox of this instance that has a directory, or of which
// anything is noted.
func (d *Driver) strays() ([]box, error) {
	dirs, err := filepath.Glob(d.path(boxesDir) + "/sbx_*")
	if err != nil {
		return nil, err
	}
	notes, err := filepath.Glob(d.kernels() + "/*sbx_*")
	if err != nil {
		return nil, err
	}
	found := make(map[string]box)
	for _, dir := range dirs {
		if b, err := d.boxOf(filepath.Base(dir)); err == nil {
			found[b.id] = b
		}
	}
	for _, file := range notes {
		if b, err := d.boxOf(noted(filepath.Base(file))); err == nil {
			found[b.id] = b
		}
	}
	all := make([]box, 0, len(found))
	for _, b := range found {
		all = append(all, b)
	}
	return all, nil
}

// Close lets go of the driver's directories, unless sandboxes live on in them or
// another server uses them.
func (d *Driver) Close() error {
	defer func() { _ = d.lock.Close() }()
	d.clearing.Wait()
	d.crowd.end()
	d.outlets.end()
	if err := d.closePool(); err != nil {
		return err
	}
	d.reserves.end()
	if err := flock.Lock(d.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another server is here
	}
	d.dropHolds()
	left, err := d.strays()
	if err != nil || len(left) > 0 {
		return err
	}
	// A network namespace without anything in it is mounted with the kernels.
	for _, dir := range []string{d.opts.Dir, d.kernels()} {
		if err := unmountUnder(dir); err != nil {
			return fmt.Errorf("let go of %s: %w", dir, err)
		}
	}
	d.forgetCgroups()
	return os.RemoveAll(d.kernels())
}
