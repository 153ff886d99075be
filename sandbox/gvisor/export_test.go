//go:build linux

package gvisor

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// PauseAndEnd leaves a sandbox as a server does that is killed when it has paused
// the kernel and not noted that yet.
func (d *Driver) PauseAndEnd(ctx context.Context, raw sandbox.Handle, f runner.Fence) error {
	h, b, err := d.find(raw)
	if err != nil {
		return err
	}
	k, leave, err := d.quiesce(ctx, h, b, f)
	if err != nil {
		return err
	}
	if err := k.c.Sandbox.Pause(b.id); err != nil {
		return err
	}
	return leave()
}

// LeaveMounted leaves the volume of a session whose sandbox has ended as a server does
// that is killed before it has cleared that away.
func (d *Driver) LeaveMounted(id dormouse.SessionID) error {
	_, err := d.session(id).Mount()
	return err
}

// ClaimAndEnd leaves a spare as a server does that is killed when it has given it
// to a session, but not the session's files to it.
func (d *Driver) ClaimAndEnd(f runner.Fence) error {
	s := d.claim(d.pool.ready)
	if s == nil {
		return errors.New("there is no spare")
	}
	defer s.close()
	return d.session(f.Session).writeRecord(record{Generation: f.Generation, Box: s.box.id})
}

// PauseForSnapshotAndEnd leaves a sandbox as a server does that is killed while it takes
// a snapshot: before the kernel was paused, or after.
func (d *Driver) PauseForSnapshotAndEnd(raw sandbox.Handle, paused bool) error {
	_, b, err := d.find(raw)
	if err != nil {
		return err
	}
	k, err := findSentry(d.conf, b.id)
	if err != nil {
		return err
	}
	defer k.close()
	if err := os.WriteFile(b.pausedNote(), nil, 0o600); err != nil || !paused {
		return err
	}
	return k.c.Sandbox.Pause(b.id)
}

// UnmountBelow unmounts everything below a directory, but not what is mounted there.
func UnmountBelow(dir string) error {
	mounts, err := mount.Under(dir)
	for _, at := range slices.Backward(mounts) {
		if at != dir {
			err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)) // a process that is ending may still use it
		}
	}
	return err
}
