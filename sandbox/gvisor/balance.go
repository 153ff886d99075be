//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// reserves keeps the volumes that are open in balance with the disk.
type reserves struct {
	able bool // the disk can allocate ahead, and give back
	dir  string
	log  *slog.Logger

	mu   sync.Mutex
	open map[string]*reserved // guarded by mu, by directory

	joined  chan struct{} // holds one: there is a volume that was not seen yet
	stop    context.CancelFunc
	running sync.WaitGroup
}

// reserved is a volume that is open.
type reserved struct {
	volume
	most  int64      // headroom
	users int        // guarded by the mu of its reserves
	mu    sync.Mutex // held while it is balanced
	gone  bool       // guarded by mu: it may be closed by now
}

const (
	// balanceEvery is how often volumes are looked at, and balanceBusy while one fills.
	balanceEvery = 50 * time.Millisecond
	balanceBusy  = 5 * time.Millisecond
	// plenty is how many times its headroom a volume keeps while there is room.
	plenty = 2
)

// begin finds out what the disk can do, and begins to keep balance.
func (r *reserves) begin(dir string, log *slog.Logger) error {
	r.dir, r.log, r.open, r.joined = dir, log, make(map[string]*reserved), make(chan struct{}, 1)
	err := probe(dir)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		log.Warn("this disk cannot be reserved: when it is full, files in sandboxes may be lost", "dir", dir)
		return nil
	case errors.Is(layer.Full(err), dormouse.ErrFull): // then it can
	case err != nil:
		return fmt.Errorf("look what the disk can do: %w", err)
	}
	r.able = true
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	r.stop = stop
	r.running.Go(func() { r.run(ctx) })
	return nil
}

// probe allocates a block on a disk, and gives it back.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	defer func() { _, _ = os.Remove(f.Name()), f.Close() }()
	const block = 4096
	b := &backing{image: f}
	if err := b.back(0, block); err != nil {
		return err
	}
	return b.unback(0, block)
}

func (r *reserves) end() {
	if r.stop != nil {
		r.stop()
		r.running.Wait()
	}
}

// join has a volume kept in balance until leave is called as often, or shut once.
func (r *reserves) join(v volume, most int64) {
	if !r.able {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[v.dir] == nil {
		r.open[v.dir] = &reserved{volume: v, most: most}
	}
	r.open[v.dir].users++
	select {
	case r.joined <- struct{}{}:
	default:
	}
}

func (r *reserves) leave(v volume) {
	r.mu.Lock()
	e := r.open[v.dir]
	if e == nil {
		r.mu.Unlock()
		return
	}
	if e.users--; e.users > 0 {
		r.mu.Unlock()
		return
	}
	delete(r.open, v.dir)
	r.mu.Unlock()
	e.forget()
}

// shut returns once nobody touches a volume any more, which may then be closed.
func (r *reserves) shut(v volume) {
	r.mu.Lock()
	e := r.open[v.dir]
	delete(r.open, v.dir)
	r.mu.Unlock()
	if e != nil {
		e.forget()
	}
}

func (e *reserved) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
}

func (r *reserves) run(ctx context.Context) {
	wrong := make(map[string]string)
	for ctx.Err() == nil {
		r.mu.Lock()
		all := slices.Collect(maps.Values(r.open))
		r.mu.Unlock()
		if len(all) == 0 {
			clear(wrong)
			select {
			case <-ctx.Done():
			case <-r.joined:
			}
			continue
		}
		pause := balanceEvery
		for _, e := range all {
			did, err := e.balance(r.dir, len(all))
			if did {
				pause = balanceBusy
			}
			if err != nil && wrong[e.dir] != err.Error() { // once, and not every time
				wrong[e.dir] = err.Error()
				r.log.WarnContext(ctx, "room for a session not reserved", "session", e.session, "error", err)
			}
		}
		_ = sleep.For(ctx, pause)
	}
}

// balance gives a volume what the disk has for it, or has it give back what others
// need more.
func (e *reserved) balance(dir string, volumes int) (did bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false, nil
	}
	on, err := diskOf(dir)
	if err != nil {
		return false, err
	}
	times := int64(plenty)
	if on.spare() == 0 {
		times = 1
	}
	return e.volume.balance(on.headroom(e.most, volumes), on.spare(), times)
}

// closeVolume closes a volume that nothing runs over any more. What it does not need
// is given back to the disk; if that fails it needs more than it should, and that is all.
func (d *Driver) closeVolume(v volume) error {
	d.reserves.shut(v)
	there, err := mounted(v.at())
	if err != nil {
		return err
	}
	if !there || !d.reserves.able {
		return v.close()
	}
	_, unbalanced := v.balance(restHeadroom, 0, 1)
	done, busy := v.clears(canceled) // old workspaces may still be removed
	if busy == nil {
		defer done()
	}
	if err := v.close(); err != nil {
		return err
	}
	if unbalanced == nil {
		unbalanced = v.failed()
	}
	if unbalanced == nil && busy == nil {
		unbalanced = v.shrink()
	}
	if unbalanced != nil {
		d.log.Warn("room of a session not given back", "session", v.session, "error", unbalanced)
	}
	return nil
}

// canceled is for whoever does not wait.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it is over already
	cancel()
	return ctx
}()

// secureRunning backs a volume that a server of a version which did not do that left
// open. Until then freed blocks were given back at once, which must not happen again.
func (d *Driver) secureRunning(v volume) {
	if there, err := mounted(v.at()); err != nil || !there || !d.reserves.able {
		return
	}
	if _, err := os.Lstat(v.ballast()); err == nil {
		return
	}
	err := unix.Mount("", v.at(), "", unix.MS_REMOUNT|volumeFlags, "nodiscard")
	if err == nil {
		err = d.secure(v)
	}
	if err != nil {
		d.log.Warn("room for a session not reserved", "session", v.session, "error", err)
	}
}
