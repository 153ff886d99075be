//go:build linux

package gvisor

import (
	"cmp"
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
	"github.com/dormouse-run/dormouse/internal/beneath"
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
	open, err := v.reachable()
	if err == nil && !open {
		open, err = v.reachElsewhere(ctx)
	}
	if err != nil || !open {
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
	now, err := layer.ScanBaseline(ctx, v.upper(workspace), limits)
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
	_, err := os.Lstat(v.image())
	if err == nil {
		return v.isOpen()
	}
	if errors.Is(err, fs.ErrNotExist) { // they may lie in a plain directory
		_, err = os.Lstat(v.at())
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
		return nil, fmt.Errorf("recover the files of %s: %w", v.session, layer.Full(err)) // it waits for room
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
	slept := v.slept(condition)
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
	if slept && now.Aside == "" {
		return before, v.forgetFailure()
	}
	now.ID = newSecret() // what was told before may be recorded, and nothing else under its name
	if err := v.loseImage("the files that they ran over were recovered"); err != nil {
		return nil, err
	}
	err = d.bringBack(ctx, v, r, now)
	if errors.Is(err, layer.ErrNoSpace) {
		err = d.bringBackAnew(ctx, v, r, now, err)
	}
	if err != nil {
		return nil, err
	}
	// What was in use when the machine ended has lost what was written last, which is told
	// even if no snapshot has any of it.
	return now, v.forgetFailure()
}

// slept reports whether the files of a session are those that it went to sleep with,
// though others may have kept its volume from being closed: all of them were synced
// while nothing ran, before the memory image was in its place, and that is taken away
// durably before anything runs over them again.
func (v volume) slept(c sandbox.Condition) bool {
	im, err := v.readImage()
	return err == nil && im != nil && im.Lost == "" && c == sandbox.Cut
}

// markTime is how times are in names.
const markTime = "20060102T150405Z"

// bringBack compares the workspace with the newest snapshot. What is to be done is noted
// before it is done: who is cut off in between does the rest, and tells all of it.
func (d *Driver) bringBack(ctx context.Context, v volume, r sandbox.Recovery, now *sandbox.Recovered) error {
	marked, synced, since := v.marks(r.Workspace.Number).Synced(string(r.Snapshot), layer.Limits{Entries: maxNoted})
	if marked == nil && r.Workspace.Number > 0 && r.Workspace.Base == r.Snapshot {
		marked = layer.Index{} // the workspace began with it, and empty
	}
	if now.Since.IsZero() {
		now.Since = since.UTC()
	}
	layers, done, err := r.Newest(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := d.secure(v); err != nil { // what is brought back must have room, too
		return err
	}
	if len(layers) > 0 {
		if err := errors.Join(v.furnish(), v.readyWorkspace(ctx, r.Workspace)); err != nil {
			return noRoom(err)
		}
		mark := now.Since
		if mark.IsZero() {
			mark = time.Now()
		}
		as := mark.UTC().Format(markTime)
		back := &layer.Recovery{
			Snapshot: layers, Base: r.Workspace.Layers, Upper: v.upper(r.Workspace.Number), AtSnapshot: marked, Synced: synced, Suffix: as,
			Scratch: filepath.Join(v.place(r.Workspace.Number), "recovering"), Outside: cmp.Or(now.Outside, filepath.Join(v.dir, "found-"+as)),
		}
		back.Moved = func(path string) error { return v.moved(now, path, back.Outside) }
		defer back.Close()
		if err := v.planBack(ctx, r, back, now); err != nil {
			return err
		}
		crash.At(crash.RecoverPlanned)
		if err := d.giveRoom(v, back.Size()); err != nil {
			return err
		}
		if err := back.Apply(ctx); err != nil {
			return err
		}
	}
	now.Fresh = false // noted while nobody can use it yet: its failure is forgotten after this
	if err := v.writeRecovered(now); err != nil {
		return err
	}
	crash.At(crash.RecoverApplied)
	if err := v.syncAnew(); err != nil {
		return err
	}
	return v.forgetBegun()
}

// noRoom is the error of a volume that has no room for what belongs in it.
func noRoom(err error) error {
	if errors.Is(err, unix.ENOSPC) && !errors.Is(err, dormouse.ErrFull) {
		return fmt.Errorf("%w: %w", layer.ErrNoSpace, err)
	}
	return err
}

// planBack finds out what to put back, and makes durable what the next recovery has to know
// and to tell of it.
func (v volume) planBack(ctx context.Context, r sandbox.Recovery, back *layer.Recovery, now *sandbox.Recovered) (err error) {
	if back.Interrupted, err = v.readBegun(r); err != nil {
		return err
	}
	files, err := back.Plan(ctx)
	if err != nil {
		return err
	}
	if err := v.noteBegun(r, back); err != nil {
		return err
	}
	add(now, files)
	return v.writeRecovered(now)
}

// giveRoom has the ballast of an open volume give up what is needed inside, as far as
// the disk can spare it.
func (d *Driver) giveRoom(v volume, need int64) (err error) {
	has, err := v.free()
	if err != nil || !d.reserves.able || has >= need+leastHeadroom {
		return err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return layer.Full(err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	on, err := diskOf(v.dir)
	if err != nil {
		return err
	}
	return layer.Full(b.release(min(need+leastHeadroom-has, on.spare())))
}

// bringBackAnew keeps a volume for people that has no room for what its session has lost,
// whatever of it is moved outside, and brings back the snapshot in an empty one. A volume
// that the recovery made itself is nothing to keep, however often it is tried: that it did
// so is noted before the volume is there, and no longer when it is the session's.
func (d *Driver) bringBackAnew(ctx context.Context, v volume, r sandbox.Recovery, now *sandbox.Recovered, why error) error {
	b, err := v.openBacking()
	if err != nil || b == nil {
		return layer.Full(errors.Join(why, err)) // in a plain directory it is the disk that is full
	}
	held := b.held
	if err := b.close(); err != nil {
		return err
	}
	if held > 0 {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, why) // the volume has room that the disk has not
	}
	if err := d.closeVolume(v); err != nil {
		return err
	}
	if now.Fresh {
		if larger, err := v.enlarge(now, d.opts.Limits.Disk); err != nil || !larger {
			return errors.Join(why, err)
		}
	} else {
		reason := now.Reason
		if err := v.setAside(now, d.opts.Limits.Disk, why); err != nil {
			return err
		}
		now.Reason = reason + ", and its volume had no room for the files of the snapshot"
	}
	// What is kept beside others is in the volume that was set aside.
	now.Files = slices.DeleteFunc(now.Files, func(f layer.Restored) bool { return !f.Outside })
	now.Count = len(now.Files)
	if err := v.writeRecovered(now); err != nil {
		return err
	}
	return d.bringBack(ctx, v, r, now)
}

// moved notes that what was found at a path is kept outside of the volume.
func (v volume) moved(r *sandbox.Recovered, path, outside string) error {
	changed := r.Outside != outside
	r.Outside = outside
	for i := range r.Files {
		if f := &r.Files[i]; f.Path == sandbox.Shown(path) && !f.Outside {
			f.SavedAs, f.Outside, changed = "", true, true
		}
	}
	if !changed {
		return nil
	}
	return v.writeRecovered(r)
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
			if err := makeDirs(v.work(w.Number)); err != nil {
				return err
			}
			name := filepath.Join(v.place(w.Number), baseFile)
			if is, err := os.ReadFile(name); err == nil && string(is) == string(w.Base) {
				return nil // it may be a full volume
			}
			return os.WriteFile(name, []byte(w.Base), 0o600)
		}
		// What may be left of it is no workspace.
		if err := beneath.At(v.place(w.Number)).Remove(); err != nil {
			return err
		}
	}
	return v.makeWorkspace(ctx, w)
}

// add lists files that are put back, but for those that are listed already.
func add(r *sandbox.Recovered, files []layer.Restored) {
	before := r.Files
	for _, f := range files {
		f = layer.Restored{Path: sandbox.Shown(f.Path), SavedAs: sandbox.Shown(f.SavedAs)}
		n := slices.IndexFunc(before, func(o layer.Restored) bool { return o.Path == f.Path })
		if n >= 0 {
			if f.SavedAs != "" && before[n].SavedAs == "" { // it is still there, or again
				before[n].SavedAs = f.SavedAs
			}
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

// readBegun returns the paths that were begun of the same workspace and snapshot.
func (v volume) readBegun(r sandbox.Recovery) ([]string, error) {
	raw, err := os.ReadFile(v.begunNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var was begun
	if err == nil {
		err = json.Unmarshal(raw, &was)
	}
	if err != nil || was.Workspace != r.Workspace.Number || was.Snapshot != r.Snapshot {
		return nil, err
	}
	paths := make([]string, len(was.Paths))
	for i, path := range was.Paths {
		paths[i] = string(path)
	}
	return paths, nil
}

// forgetBegun says that everything that was begun is done, durably.
func (v volume) forgetBegun() error {
	err := os.Remove(v.begunNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(v.dir))
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
	return errors.Join(v.forgetRecovered(), atomicfile.SyncDir(v.dir))
}

// sound refuses files that are not recovered.
func (v volume) sound() error {
	condition, why, err := v.condition()
	if err == nil && condition != sandbox.Sound {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnsound, why)
	}
	return err
}
