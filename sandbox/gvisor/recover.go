//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

var (
	_ sandbox.Recoverer = (*Driver)(nil)
	_ sandbox.Syncer    = (*Driver)(nil)
)

// Sync makes durable what was written to the files of a session. What is not open was
// synced when it was closed.
func (d *Driver) Sync(ctx context.Context, id dormouse.SessionID, workspace uint64, newest dormouse.SnapshotID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	v := d.volumeOf(id)
	if open, err := v.reachable(); err != nil || !open {
		return errors.Join(err, v.failed())
	}
	if newest == "" {
		return v.sync()
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if open, err := v.reachable(); err != nil || !open {
		return errors.Join(err, v.failed())
	}
	// Looked at before it is synced: what is written meanwhile is not taken for synced.
	limits := layer.Limits{Entries: maxNoted}
	now, err := layer.Look(ctx, v.upper(workspace), limits)
	if errors.Is(err, layer.ErrTooMany) {
		return v.sync()
	}
	if err != nil {
		return errors.Join(v.sync(), fmt.Errorf("look at what is synced: %w", err))
	}
	if err := v.sync(); err != nil {
		return err
	}
	if err := v.marks(workspace).Write(syncedMark, now, string(newest)); err != nil {
		d.log.WarnContext(ctx, "what was synced is not noted", "session", id, "error", err)
	}
	return nil
}

// reachable reports whether the files of a session are reachable.
func (v volume) reachable() (bool, error) {
	_, err := os.Lstat(v.image()) //nolint:gosec // a session id is a file name
	if err == nil {
		return v.isOpen()
	}
	if errors.Is(err, fs.ErrNotExist) { // they may lie in a plain directory
		_, err = os.Lstat(v.at()) //nolint:gosec // as above
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

const (
	// syncedMark is the mark of what was synced without a capture.
	syncedMark = "synced"
	// maxNoted is how many files are noted as synced.
	maxNoted = 2 << 20
)

// recoveredNote is what was done to the files of a session and nobody has recorded yet.
func (v volume) recoveredNote() string { return filepath.Join(v.dir, "recovered.json") }

// Recover brings the files of a session back to what they are known to have been.
func (d *Driver) Recover(ctx context.Context, r sandbox.Recovery) (*sandbox.Recovered, error) {
	if err := r.Fence.Validate(); err != nil {
		return nil, err
	}
	v := d.volumeOf(r.Fence.Session)
	if _, err := os.Stat(d.legacy(v.session).dir); err == nil { // it begins with what another had
		if err := os.MkdirAll(v.dir, 0o700); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(v.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there are none
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := d.inherit(v); err != nil {
		return nil, err
	}
	done, err := d.recover(ctx, v, r)
	if err != nil {
		return nil, fmt.Errorf("recover the files of %s: %w", v.session, err)
	}
	return done, nil
}

func (d *Driver) recover(ctx context.Context, v volume, r sandbox.Recovery) (_ *sandbox.Recovered, err error) {
	before, err := v.readRecovered()
	if err != nil {
		return nil, err
	}
	condition, why, err := v.condition()
	if err != nil || condition == sandbox.Sound {
		return before, err
	}
	if err := d.endLeftover(ctx, v, r.Fence); err != nil {
		return nil, err
	}
	d.log.WarnContext(ctx, "files of a session are recovered", "session", v.session, "condition", condition, "reason", why)
	now := &sandbox.Recovered{ID: newSecret(), Session: v.session, Condition: condition, Reason: why}
	if before != nil { // whoever recovered them was cut off himself
		now = before
	}
	if condition == sandbox.Failed {
		now.Condition = condition
	}
	if err := v.noteCondition(condition, why); err != nil {
		return nil, err
	}
	if err := v.reopen(ctx, now, d.opts.Limits.Disk); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.closeVolume(v)) }()
	if err := d.secure(v); err != nil { // what is brought back must have room, too
		return nil, err
	}
	if err := d.bringBack(ctx, v, r, now); err != nil {
		return nil, err
	}
	if err := v.forgetFailure(); err != nil {
		return nil, err
	}
	// What was in use when the machine ended has lost what was written last, which is told
	// even if no snapshot has any of it. What sleeps was synced, though others may have
	// kept its volume from being closed.
	if im, err := v.readImage(); err == nil && im != nil && condition == sandbox.Cut && now.Count == 0 {
		return nil, v.forgetRecovered()
	}
	return now, nil
}

// markTime is how times are in names.
const markTime = "20060102T150405Z"

// bringBack compares the workspace with the newest snapshot. What is to be done is noted
// before it is done: who is cut off in between does the rest, and tells all of it.
func (d *Driver) bringBack(ctx context.Context, v volume, r sandbox.Recovery, now *sandbox.Recovered) error {
	synced, since := v.marks(r.Workspace.Number).Synced(r.Limits)
	if now.Since.IsZero() {
		now.Since = since.UTC()
	}
	layers, done, err := r.Newest(ctx)
	if err != nil {
		return err
	}
	defer done()
	if len(layers) > 0 {
		if err := v.furnish(); err != nil {
			return err
		}
		if err := v.readyWorkspace(ctx, r.Workspace); err != nil {
			return err
		}
		mark := now.Since
		if mark.IsZero() {
			mark = time.Now()
		}
		back := &layer.Recovery{
			Point: layers, Base: r.Workspace.Layers, Upper: v.upper(r.Workspace.Number), Synced: synced, Limits: r.Limits,
			Mark: mark.UTC().Format(markTime),
		}
		defer back.Close()
		files, err := back.Plan(ctx)
		if err != nil {
			return err
		}
		add(now, files)
		if err := v.writeRecovered(now); err != nil {
			return err
		}
		crash.At(crash.RecoverPlanned)
		if err := back.Apply(ctx); err != nil {
			return err
		}
	}
	if err := v.writeRecovered(now); err != nil {
		return err
	}
	crash.At(crash.RecoverApplied)
	return v.syncAnew()
}

// readyWorkspace sees to it that a workspace is there to bring something back to. What
// says which point it lies over may be lost while it is there.
func (v volume) readyWorkspace(ctx context.Context, w sandbox.Workspace) error {
	if w.Number > 0 {
		there, err := v.has(w.Number)
		if err != nil {
			return err
		}
		if there {
			return os.WriteFile(filepath.Join(v.place(w.Number), baseFile), []byte(w.Base), 0o600)
		}
	}
	return v.makeWorkspace(ctx, w)
}

// add lists files that are put back, but for those that are listed already.
func add(r *sandbox.Recovered, files []layer.Restored) {
	before := r.Files
	for _, f := range files {
		f = layer.Restored{Path: sandbox.Shown(f.Path), Kept: sandbox.Shown(f.Kept)}
		if slices.ContainsFunc(before, func(o layer.Restored) bool { return o.Path == f.Path }) {
			continue
		}
		if r.Count++; len(r.Files) < sandbox.MaxLeft {
			r.Files = append(r.Files, f)
		}
	}
}

// syncAnew makes recovered files durable. Their failure is over then.
func (v volume) syncAnew() error {
	f, err := os.Open(v.at())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return v.fail(err) // which the kernel says once
	}
	return v.gaveUp()
}

func (v volume) forgetFailure() error {
	var errs []error
	for _, name := range []string{v.failedNote(), v.cutNote(), v.openedNote()} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	unnoted.forget(v.dir)
	return errors.Join(append(errs, atomicfile.SyncDir(v.dir))...)
}

func (v volume) readRecovered() (*sandbox.Recovered, error) {
	raw, err := os.ReadFile(v.recoveredNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	r := new(sandbox.Recovered)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (v volume) writeRecovered(r *sandbox.Recovered) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(v.recoveredNote(), raw, 0o600)
}

func (v volume) forgetRecovered() error {
	if err := os.Remove(v.recoveredNote()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Told forgets what was done to the files of a session.
func (d *Driver) Told(r sandbox.Recovered) error {
	if err := r.Session.Validate(); err != nil {
		return err
	}
	v := d.volumeOf(r.Session)
	is, err := v.readRecovered()
	if err != nil || is == nil || is.ID != r.ID {
		return err
	}
	return v.forgetRecovered()
}

// sound refuses files that are not recovered.
func (v volume) sound() error {
	condition, why, err := v.condition()
	if err == nil && condition != sandbox.Sound {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnsound, why)
	}
	return err
}
