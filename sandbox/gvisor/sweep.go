//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// keepLost is how long the files of unknown sessions are kept.
const keepLost = 7 * 24 * time.Hour

// Sweep stops the sandboxes of this instance that have no owner, including those that
// other servers started, and sets aside the files of unknown sessions.
func (d *Driver) Sweep(ctx context.Context, owned func(dormouse.SessionID) sandbox.Ownership) error {
	var errs []error
	kept := make(map[string]bool)
	sessions, err := os.ReadDir(d.path(sessionsDir))
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	mounted, err := mount.Under(d.path(sessionsDir))
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	for _, e := range sessions {
		id := dormouse.SessionID(e.Name())
		b, err := d.sweepSession(ctx, id, owned, slices.Contains(mounted, d.session(id).Mountpoint()))
		if err != nil {
			errs = append(errs, err)
		}
		kept[b] = true
	}
	strays, err := d.allBoxes()
	if err != nil {
		return fmt.Errorf("sweep sandboxes: %w", err)
	}
	for _, b := range strays {
		if kept[b.id] || b.isSpare() || d.hasOwner(b) {
			continue
		}
		if err := d.end(ctx, b, d.noSession()); err != nil {
			errs = append(errs, fmt.Errorf("stop stray sandbox %s: %w", b.id, err))
			continue
		}
		d.log.InfoContext(ctx, "stray sandbox stopped", "sandbox", b.id)
	}
	d.removeHolds()
	return errors.Join(append(errs, d.removeLost(time.Now()), d.sweepBranches(owned, time.Now()), d.sweepLeftovers(time.Now()))...)
}

// sweepLeftovers removes what servers that were killed have left unfinished and is no
// session's.
func (d *Driver) sweepLeftovers(now time.Time) error {
	errs := []error{d.volumes.SweepLeftovers(now)}
	keys, err := d.packages().Keys()
	for _, key := range keys {
		errs = append(errs, atomicfile.Sweep(d.packages().KeyDir(key)))
	}
	roots, none := filepath.Glob(filepath.Join(d.path(rootsDir), newRoot+"*"))
	for _, dir := range roots {
		if at, err := os.Stat(dir); err == nil && now.Sub(at.ModTime()) > keepBranches {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(append(errs, err, none)...)
}

// removeHolds removes the marks of spares of servers that have ended.
func (d *Driver) removeHolds() {
	holds, _ := filepath.Glob(d.path(boxesDir) + "/.sbx_*") // the pattern is our own
	for _, name := range holds {
		removeHold(name)
	}
}

// hasOwner reports whether a session has taken a box meanwhile.
func (d *Driver) hasOwner(b box) bool {
	records, err := filepath.Glob(d.path(sessionsDir) + "/*/box.json")
	if err != nil {
		return true
	}
	for _, name := range records {
		r, err := sessionDir{volume.Volume{Dir: filepath.Dir(name)}}.readRecord()
		if err != nil || r != nil && r.Box == b.id {
			return true
		}
	}
	return false
}

// sweepSession stops the sandbox of a session if the session does not own it, and
// otherwise returns its box. A volume that is mounted and that no sandbox has is closed:
// its server was killed after it had stopped the sandbox.
func (d *Driver) sweepSession(ctx context.Context, id dormouse.SessionID, owned func(dormouse.SessionID) sandbox.Ownership, mounted bool) (string, error) {
	if id.Validate() != nil {
		return "", nil
	}
	v := d.session(id)
	unlock, err := v.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := errors.Join(v.SweepLeftovers(), os.RemoveAll(v.newImageDir())); err != nil {
		d.log.WarnContext(ctx, "leftovers not removed", "session", id, "error", err)
	}
	r, err := v.readRecord()
	if err != nil {
		return "", err
	}
	owner := owned(id)
	if r != nil {
		if owner.Unsure || owner.Generation == r.Generation {
			if r.Started {
				d.removeOldWorkspaces(ctx, v, r.Workspace)
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
		err := v.discardUnfinished()
		if mounted && r == nil {
			err = errors.Join(err, d.volumes.Close(v.Volume))
		}
		return "", err
	}
	return "", d.setAside(ctx, v)
}

// setAside sets the files of a session aside.
func (d *Driver) setAside(ctx context.Context, v sessionDir) error {
	if err := v.Close(); err != nil {
		return err
	}
	to := filepath.Join(d.path(lostDir), string(v.Session)+"-"+strconv.FormatInt(time.Now().Unix(), 10))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("set aside the files of %s: %w", v.Session, err)
	}
	if err := os.Rename(v.Dir, to); err != nil {
		return fmt.Errorf("set aside the files of %s: %w", v.Session, err)
	}
	d.log.WarnContext(ctx, "files of an unknown session set aside", "session", v.Session, "kept_in", to, "days", int(keepLost.Hours()/24))
	return nil
}

// removeLost removes what was set aside long enough ago.
func (d *Driver) removeLost(now time.Time) error {
	lost, err := filepath.Glob(d.path(lostDir) + "/*-*")
	if err != nil {
		return err
	}
	for _, dir := range lost {
		at, err := strconv.ParseInt(dir[strings.LastIndexByte(dir, '-')+1:], 10, 64)
		if err != nil || now.Sub(time.Unix(at, 0)) < keepLost {
			continue
		}
		if err := beneath.At(dir).Remove(); err != nil {
			return fmt.Errorf("remove what was set aside: %w", err)
		}
	}
	return nil
}

// allBoxes finds every sandbox of this instance that has a directory, state files or a
// control group.
func (d *Driver) allBoxes() ([]box, error) {
	dirs, err := filepath.Glob(d.path(boxesDir) + "/sbx_*")
	if err != nil {
		return nil, err
	}
	notes, err := filepath.Glob(d.kernels() + "/*sbx_*")
	if err != nil {
		return nil, err
	}
	names, err := d.cpu.Sandboxes()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		names = append(names, filepath.Base(dir))
	}
	for _, file := range notes {
		names = append(names, boxOfState(filepath.Base(file)))
	}
	found := make(map[string]box)
	for _, name := range names {
		if b, err := d.boxOf(name); err == nil {
			found[b.id] = b
		}
	}
	all := make([]box, 0, len(found))
	for _, b := range found {
		all = append(all, b)
	}
	return all, nil
}

// releaseCPUs gives the sandboxes that earlier servers have left background priority until
// a server opens them. If another server has them open, it is told again of every client
// that begins to wait.
func (d *Driver) releaseCPUs() error {
	all, err := d.allBoxes()
	for _, b := range all {
		err = errors.Join(err, d.cpu.Group(b.id).Release())
	}
	return err
}

// Close unmounts the driver's directories, unless sandboxes live on in them or another
// server uses them.
func (d *Driver) Close() error {
	defer func() { _ = d.lock.Close() }()
	d.cleanups.Wait()
	d.cpu.Close()
	d.egress.close()
	if err := d.closePool(); err != nil {
		return err
	}
	d.volumes.Stop()
	if err := flock.Lock(d.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another server is here
	}
	d.removeHolds()
	left, err := d.allBoxes()
	if err != nil || len(left) > 0 {
		return err
	}
	// An empty network namespace is mounted beside the kernels.
	for _, dir := range []string{d.opts.Dir, d.kernels()} {
		if err := mount.UnmountAll(dir); err != nil {
			return fmt.Errorf("let go of %s: %w", dir, err)
		}
	}
	d.cpu.RemoveParents()
	return os.RemoveAll(d.kernels())
}
