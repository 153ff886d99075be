//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

var (
	_ sandbox.Recoverer = (*Driver)(nil)
	_ sandbox.Syncer    = (*Driver)(nil)
)

// Sync makes durable what was written to the files of a session. A volume that is closed
// was synced then.
func (d *Driver) Sync(ctx context.Context, id dormouse.SessionID, workspace uint64, newest dormouse.SnapshotID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	v := d.session(id)
	open, err := v.Available()
	if err == nil && !open {
		open, err = v.lockAndMount(ctx)
	}
	if err != nil || !open {
		return errors.Join(err, v.CheckFailed())
	}
	if newest == "" {
		return v.Sync()
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if open, err := v.Available(); err != nil || !open {
		return errors.Join(err, v.CheckFailed())
	}
	notNoted, err := v.SyncWorkspace(ctx, workspace, newest)
	if notNoted != nil {
		d.log.WarnContext(ctx, "record of synced files not written", "session", id, "error", notNoted)
	}
	return err
}

// Recover brings the files of a session back to what they are known to have been.
func (d *Driver) Recover(ctx context.Context, r sandbox.Recovery) (*sandbox.Recovered, error) {
	if err := r.Fence.Validate(); err != nil {
		return nil, err
	}
	v := d.session(r.Fence.Session)
	if _, err := os.Stat(d.branchDir(v.Session).Dir); err == nil { // it is a branch
		if err := os.MkdirAll(v.Dir, 0o700); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(v.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there are none
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := d.takeBranch(v); err != nil {
		return nil, err
	}
	done, err := d.recoverFiles(ctx, v, r)
	if err != nil {
		return nil, fmt.Errorf("recover the files of %s: %w", v.Session, err)
	}
	return done, nil
}

// recoverFiles is called with the session locked.
func (d *Driver) recoverFiles(ctx context.Context, v sessionDir, r sandbox.Recovery) (*sandbox.Recovered, error) {
	before, err := v.ReadRecovered()
	if err != nil {
		return nil, err
	}
	condition, why, err := v.Condition()
	if err != nil || condition == sandbox.Sound {
		return before, err
	}
	asleep := v.asleep(condition)
	if err := d.endStale(ctx, v, r.Fence); err != nil {
		return nil, err
	}
	return d.volumes.Recover(ctx, v.Volume, r, volume.Damage{Condition: condition, Reason: why, Asleep: asleep, DropImage: v.dropImage})
}

// asleep reports whether the files of a session are those that it hibernated with, though
// others may have kept its volume mounted: all were synced while nothing ran, before the
// memory image was in its place, and the image is claimed durably before anything runs
// over them again.
func (v sessionDir) asleep(c sandbox.Condition) bool {
	im, err := v.readImage()
	return err == nil && im != nil && im.Lost == "" && c == sandbox.Cut
}

// ForgetRecovered removes the note of a recovery that is recorded.
func (d *Driver) ForgetRecovered(r sandbox.Recovered) error {
	if err := r.Session.Validate(); err != nil {
		return err
	}
	return d.session(r.Session).ForgetRecovered(r.ID)
}
