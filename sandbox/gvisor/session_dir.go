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
// has it, its memory image, and which image and packages it uses.
type sessionDir struct{ volume.Volume }

func (d *Driver) session(id dormouse.SessionID) sessionDir {
	return sessionDir{volume.Volume{Session: id, Dir: filepath.Join(d.opts.Dir, sessionsDir, string(id))}}
}

// noSession is for sandboxes that are no session's: nothing is there.
func (d *Driver) noSession() sessionDir { return sessionDir{volume.Volume{Dir: d.path("none")}} }

// ahead is an empty volume that is created with a spare, for a session that has none yet.
func (b box) ahead() volume.Volume { return volume.Volume{Dir: filepath.Join(b.dir, "ahead")} }

// ensureMounted mounts the volume of a sandbox here if a server in another mount namespace
// has opened it: a server that runs as a service may have one of its own, and sandboxes
// outlive it. A volume that is not mounted here could neither be synced nor snapshotted.
// The session is locked.
func (v sessionDir) ensureMounted() error {
	if _, err := os.Lstat(v.Image()); errors.Is(err, fs.ErrNotExist) {
		return nil // a plain directory
	}
	if there, err := v.IsMounted(); err != nil || there {
		return err
	}
	if r, err := v.readRecord(); err != nil || r == nil {
		return err // it was closed, though others may have it mounted
	}
	return v.MountOpened()
}

// lockAndMount reports whether a volume that is not mounted here is in use after all.
func (v sessionDir) lockAndMount(ctx context.Context) (bool, error) {
	if r, err := v.readRecord(); err != nil || r == nil {
		return false, err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := v.ensureMounted(); err != nil {
		return false, err
	}
	return v.Available()
}
