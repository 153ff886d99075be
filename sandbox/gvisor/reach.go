//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// reach mounts the volume of a sandbox here that a server with other mounts has opened: one
// that is started as a service may have mounts of its own, and sandboxes outlive it. What is
// not mounted here could neither be synced nor captured. The session is locked.
func (v volume) reach() error {
	if _, err := os.Lstat(v.image()); errors.Is(err, fs.ErrNotExist) {
		return nil // a plain directory
	}
	if there, err := v.isOpen(); err != nil || there {
		return err
	}
	if r, err := v.readRecord(); err != nil || r == nil {
		return err // it was closed, though others may hold on to it
	}
	dev, err := showing(v.image())
	if err != nil || dev == nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	err = os.MkdirAll(v.at(), 0o700)
	if err == nil {
		err = mountLoop(v.image(), v.at())
	}
	if err != nil {
		return fmt.Errorf("mount what another server has opened: %w", err)
	}
	return nil
}

// reachElsewhere reports whether a volume that is not open here is open after all.
func (v volume) reachElsewhere(ctx context.Context) (bool, error) {
	if r, err := v.readRecord(); err != nil || r == nil {
		return false, err
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := v.reach(); err != nil {
		return false, err
	}
	return v.reachable()
}
