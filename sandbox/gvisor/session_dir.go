//go:build linux

package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// sessionDir is what the host keeps of a session: its volume, and beside it which sandbox
// has it, the memory image it sleeps with, and which image and packages it is made of.
type sessionDir struct{ volume.Volume }

func (d *Driver) session(id dormouse.SessionID) sessionDir {
	return sessionDir{volume.Volume{Session: id, Dir: filepath.Join(d.opts.Dir, sessionsDir, string(id))}}
}

// noSession is for sandboxes that are no session's: nothing is there.
func (d *Driver) noSession() sessionDir { return sessionDir{volume.Volume{Dir: d.path("none")}} }

// ahead is an empty volume that is made and opened with a box, for a session which may have
// none.
func (b box) ahead() volume.Volume { return volume.Volume{Dir: filepath.Join(b.dir, "ahead")} }

// reach mounts the volume of a sandbox here that a server with other mounts has opened: one
// that is started as a service may have mounts of its own, and sandboxes outlive it. What is
// not mounted here could neither be synced nor captured. The session is locked.
func (v sessionDir) reach() error {
	if _, err := os.Lstat(v.Image()); errors.Is(err, fs.ErrNotExist) {
		return nil // a plain directory
	}
	if there, err := v.IsMounted(); err != nil || there {
		return err
	}
	if r, err := v.readRecord(); err != nil || r == nil {
		return err // it was closed, though others may hold on to it
	}
	return v.MountOpened()
}

// reachElsewhere reports whether a volume that is not open here is open after all.
func (v sessionDir) reachElsewhere(ctx context.Context) (bool, error) {
	if r, err := v.readRecord(); err != nil || r == nil {
		return false, err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := v.reach(); err != nil {
		return false, err
	}
	return v.Available()
}
