//go:build linux

// Package holdback reserves disk space for deletions: a deletion has to be written to the
// log, and on a full disk nothing can be written.
package holdback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

const (
	most, least = 16 << 20, 256 << 10
	// share is the part of a disk that is reserved: a 64th.
	share = 64
	// step is how much is released at once. Others may be quicker to use it.
	step = 256 << 10
	// refillEvery is how often the reserve is filled up again.
	refillEvery = time.Second
)

// File is a file whose blocks are the reserve.
type File struct {
	mu   sync.Mutex // held while its size changes, which other servers may do as well
	f    *os.File
	want int64

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open reserves space in a file of its own, as much as there is, until it is closed. On a
// file system that cannot allocate blocks nothing is reserved.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.ENOSPC) { // there is no space even for the name
		return nil, nil //nolint:nilnil // a nil one releases nothing
	}
	if err != nil {
		return nil, fmt.Errorf("reserve disk space: %w", err)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil {
		return nil, fmt.Errorf("reserve disk space: %w", errors.Join(err, f.Close()))
	}
	total := int64(on.Blocks) * on.Bsize //nolint:gosec // no disk is that large
	r := &File{f: f, want: min(max(total/share, least), most)}
	r.refill()
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the server
	r.stop = stop
	r.running.Go(func() {
		for sleep.For(ctx, refillEvery) == nil {
			r.refill()
		}
	})
	return r, nil
}

// Release frees part of the reserve, and reports whether there was any left.
func (r *File) Release() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	size := r.size()
	return size > 0 && r.f.Truncate(max(size-step, 0)) == nil
}

// size is how much is reserved now.
func (r *File) size() int64 {
	at, err := r.f.Stat()
	if err != nil {
		return 0
	}
	return at.Size()
}

// refill fills the reserve up, if the disk has at least twice as much free.
func (r *File) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var on unix.Statfs_t
	size := r.size()
	missing := r.want - size
	if missing <= 0 || unix.Fstatfs(int(r.f.Fd()), &on) != nil {
		return
	}
	if free := int64(on.Bavail) * on.Bsize; free < 2*missing { //nolint:gosec // no disk is that large
		return
	}
	_ = unix.Fallocate(int(r.f.Fd()), 0, size, missing) // what cannot be had now is tried again
}

// Close closes the file, whose blocks stay reserved for the next server.
func (r *File) Close() error {
	if r == nil {
		return nil
	}
	r.stop()
	r.running.Wait()
	return r.f.Close()
}
