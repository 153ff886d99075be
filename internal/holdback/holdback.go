//go:build linux

// Package holdback holds back some room on a disk for what makes room on it: to
// remove something is to write that it is removed, and on a full disk nothing is
// written.
package holdback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	most, least = 16 << 20, 256 << 10
	// share is the part of a disk that is held back.
	share = 64
	// step is what is given at once. Others may be quicker to take it.
	step = 256 << 10
	// refillEvery is how often it is tried to have what was given again.
	refillEvery = time.Second
)

// File takes room on a disk, and gives it up when it is needed.
type File struct {
	mu   sync.Mutex // held while it changes, which other servers may do as well
	f    *os.File
	want int64

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open holds back room in a file of its own, as much as there is, until it is closed. On
// a disk that cannot do that nothing is held back.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.ENOSPC) { // there is no room for the name, even
		return nil, nil //nolint:nilnil // a nil one gives nothing
	}
	if err != nil {
		return nil, fmt.Errorf("hold back room on the disk: %w", err)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil {
		return nil, fmt.Errorf("hold back room on the disk: %w", errors.Join(err, f.Close()))
	}
	total := int64(on.Blocks) * on.Bsize //nolint:gosec // no disk is that large
	r := &File{f: f, want: min(max(total/share, least), most)}
	r.refill()
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the server
	r.stop = stop
	r.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(refillEvery):
				r.refill()
			}
		}
	})
	return r, nil
}

// Give gives up some room, and reports whether there was any to give.
func (r *File) Give() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.has()
	return has > 0 && r.f.Truncate(max(has-step, 0)) == nil
}

// has is what is held back now.
func (r *File) has() int64 {
	at, err := r.f.Stat()
	if err != nil {
		return 0
	}
	return at.Size()
}

// refill takes what is missing, if the disk has more than that to spare.
func (r *File) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var on unix.Statfs_t
	has := r.has()
	missing := r.want - has
	if missing <= 0 || unix.Fstatfs(int(r.f.Fd()), &on) != nil {
		return
	}
	if free := int64(on.Bavail) * on.Bsize; free < 2*missing { //nolint:gosec // no disk is that large
		return
	}
	_ = unix.Fallocate(int(r.f.Fd()), 0, has, missing) // what cannot be had now is tried again
}

// Close lets go of the file, which goes on holding back room for the next to open it.
func (r *File) Close() error {
	if r == nil {
		return nil
	}
	r.stop()
	r.running.Wait()
	return r.f.Close()
}
