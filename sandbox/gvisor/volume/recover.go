//go:build linux

package volume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Damage is what is wrong with the files of a session.
type Damage struct {
	Condition sandbox.Condition
	Reason    string
	// Asleep says that the files are those that the session hibernated with, all of them
	// synced.
	Asleep bool
	// DropImage gives up the memory image that belongs to the files, if there is one.
	DropImage func(why string) error
}

// Recover brings the files of a session back to what they are known to have been. The
// session is locked, and has no sandbox.
func (s *Store) Recover(ctx context.Context, v Volume, r sandbox.Recovery, d Damage) (_ *sandbox.Recovered, err error) {
	defer func() { err = layer.Full(err) }() // it is tried again when there is room
	before, err := v.ReadRecovered()
	if err != nil {
		return nil, err
	}
	s.log.WarnContext(ctx, "files of a session are recovered", "session", v.Session, "condition", d.Condition, "reason", d.Reason)
	now := &sandbox.Recovered{ID: rand.Text(), Session: v.Session, Condition: d.Condition, Reason: d.Reason}
	if before != nil { // the recovery before was interrupted
		now = before
	}
	if d.Condition == sandbox.Failed {
		now.Condition = d.Condition
	}
	if err := v.recordCondition(d.Condition, d.Reason); err != nil {
		return nil, err
	}
	if err := v.reopen(ctx, now, s.limits.Disk); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(v)) }()
	if d.Asleep && now.Aside == "" {
		return before, v.clearFailure()
	}
	now.ID = rand.Text() // what was reported before may be recorded under the old one
	if err := d.DropImage("the files that they ran over were recovered"); err != nil {
		return nil, err
	}
	err = s.restore(ctx, v, r, now)
	if errors.Is(err, layer.ErrNoSpace) {
		err = s.restoreFresh(ctx, v, r, now, err)
	}
	if err != nil {
		return nil, err
	}
	// A volume that was in use at a power cut has lost what was written last, which is
	// reported even if no snapshot has any of it.
	return now, v.clearFailure()
}

// markTime is the format of times in names.
const markTime = "20060102T150405Z"

// restore compares the workspace with the newest snapshot and puts back what was lost. It
// notes what it is going to do before it does it: if it is interrupted, the next recovery
// does the rest and reports all of it.
func (s *Store) restore(ctx context.Context, v Volume, r sandbox.Recovery, now *sandbox.Recovered) error {
	marked, synced, since := v.Marks(r.Workspace.Number).Synced(string(r.Snapshot), layer.Limits{Entries: maxNoted})
	if marked == nil && r.Workspace.Number > 0 && r.Workspace.Base == r.Snapshot {
		marked = layer.Index{} // the workspace began with it, and with an empty upper directory
	}
	if now.Since.IsZero() {
		now.Since = since.UTC()
	}
	layers, done, err := readable(ctx, r, now)
	if err != nil {
		return err
	}
	defer done()
	if now.Lost != "" { // whatever is older than the files says nothing of them
		r.Snapshot, marked, synced = "", nil, nil
	}
	if err := s.Back(v); err != nil { // what is put back needs room, too
		return err
	}
	if len(layers) > 0 || now.Lost != "" {
		if err := errors.Join(v.makeDirs(), v.prepareWorkspace(ctx, r.Workspace)); err != nil {
			return noRoom(err)
		}
	}
	if len(layers) > 0 {
		mark := now.Since
		if mark.IsZero() {
			mark = time.Now()
		}
		as := mark.UTC().Format(markTime)
		back := &layer.Recovery{
			Snapshot: layers, Base: r.Workspace.Layers, Upper: v.Upper(r.Workspace.Number), AtSnapshot: marked, Synced: synced, Suffix: as,
			Scratch: filepath.Join(v.workspaceDir(r.Workspace.Number), "recovering"), Outside: cmp.Or(now.Outside, filepath.Join(v.Dir, "found-"+as)),
		}
		back.Moved = func(path string) error { return v.noteMoved(now, path, back.Outside) }
		defer back.Close()
		if err := v.plan(ctx, r, back, now); err != nil {
			return err
		}
		crash.At(crash.RecoverPlanned)
		if err := s.makeRoom(v, back.Size()); err != nil {
			return err
		}
		if err := back.Apply(ctx); err != nil {
			return err
		}
	}
	now.Fresh = false // while it cannot be used yet: its failure is cleared after this
	if err := v.writeRecovered(now); err != nil {
		return err
	}
	crash.At(crash.RecoverApplied)
	if err := v.syncRecovered(); err != nil {
		return err
	}
	return v.removeIntent()
}

// readable returns the layers that the workspace is compared with. If the newest snapshot
// is lost, the files that were found are the newest there are: an older one would put back
// what they have replaced. It is for a volume that nothing was found in.
func readable(ctx context.Context, r sandbox.Recovery, now *sandbox.Recovered) (layers []string, done func(), err error) {
	layers, done, err = r.Newest(ctx)
	if !errors.Is(err, sandbox.ErrSnapshotLost) {
		now.Lost = "" // it may have been brought back since it was asked for before
		return layers, done, err
	}
	now.Lost = err.Error()
	if !now.Fresh || r.Older == nil {
		return nil, func() {}, nil
	}
	return r.Older(ctx)
}

// noRoom is the error of a volume that is too full for what belongs in it.
func noRoom(err error) error {
	if errors.Is(err, unix.ENOSPC) && !errors.Is(err, dormouse.ErrFull) {
		return fmt.Errorf("%w: %w", layer.ErrNoSpace, err)
	}
	return err
}

// plan finds out what to put back, and makes durable what the next recovery has to know
// and to report of it.
func (v Volume) plan(ctx context.Context, r sandbox.Recovery, back *layer.Recovery, now *sandbox.Recovered) (err error) {
	if back.Interrupted, err = v.readIntent(r); err != nil {
		return err
	}
	files, err := back.Plan(ctx)
	if err != nil {
		return err
	}
	if err := v.writeIntent(r, back); err != nil {
		return err
	}
	add(now, files)
	return v.writeRecovered(now)
}

// restoreFresh sets a volume aside that is too full for the files of the snapshot, even
// with found files moved outside, and restores the snapshot into an empty one. A volume
// that the recovery itself has created is never set aside, however often it is tried:
// Fresh is noted before the volume exists, and removed before the session gets it.
func (s *Store) restoreFresh(ctx context.Context, v Volume, r sandbox.Recovery, now *sandbox.Recovered, why error) error {
	b, err := v.openBacking()
	if err != nil || b == nil {
		return layer.Full(errors.Join(why, err)) // for a plain directory it is the disk that is full
	}
	held := b.held
	if err := b.close(); err != nil {
		return err
	}
	if held > 0 {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, why) // the volume has room that the disk does not have
	}
	if err := s.Close(v); err != nil {
		return err
	}
	if now.Fresh {
		if larger, err := v.enlarge(now, s.limits.Disk); err != nil || !larger {
			return errors.Join(why, err)
		}
	} else {
		reason := now.Reason
		if err := v.setAside(now, s.limits.Disk, why); err != nil {
			return err
		}
		now.Reason = reason + ", and its volume had no room for the files of the snapshot"
	}
	// Files that were kept beside others are in the volume that was set aside.
	now.Files = slices.DeleteFunc(now.Files, func(f layer.Restored) bool { return !f.Outside })
	now.Count = len(now.Files)
	if err := v.writeRecovered(now); err != nil {
		return err
	}
	return s.restore(ctx, v, r, now)
}

// prepareWorkspace creates the directories of a workspace as far as they are lost.
func (v Volume) prepareWorkspace(ctx context.Context, w sandbox.Workspace) error {
	if w.Number > 0 {
		there, err := v.HasWorkspace(w.Number)
		if err != nil {
			return err
		}
		if there {
			if err := filemode.MkdirAll(v.workDir(w.Number)); err != nil {
				return err
			}
			name := filepath.Join(v.workspaceDir(w.Number), baseFile)
			if is, err := os.ReadFile(name); err == nil && string(is) == string(w.Base) {
				return nil // the volume may be full
			}
			return os.WriteFile(name, []byte(w.Base), 0o600)
		}
		// Whatever is left of it is incomplete.
		if err := beneath.At(v.workspaceDir(w.Number)).Remove(); err != nil {
			return err
		}
	}
	return v.CreateWorkspace(ctx, w)
}

// syncRecovered makes recovered files durable, although the volume is still noted as
// failed.
func (v Volume) syncRecovered() error {
	f, err := os.Open(v.Mountpoint())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return v.fail(err) // the kernel reports it once
	}
	return v.aborted()
}
