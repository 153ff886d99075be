//go:build linux

package volume

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

// balancer keeps headroom in open volumes, and returns what they do not need to the disk.
type balancer struct {
	supported bool // the disk can allocate blocks and punch holes
	dir       string
	log       *slog.Logger

	mu   sync.Mutex
	open map[string]*member // guarded by mu, by directory

	joined  chan struct{} // holds one: a volume has joined
	stop    context.CancelFunc
	running sync.WaitGroup
}

// member is a volume that is open.
type member struct {
	Volume
	most   int64      // its headroom at most
	users  int        // guarded by the mu of its balancer
	mu     sync.Mutex // held while it is balanced
	closed bool       // guarded by mu: the volume may be closed by now
}

const (
	// balanceEvery is how often volumes are checked, and balanceBusy while one fills.
	balanceEvery = 50 * time.Millisecond
	balanceBusy  = 5 * time.Millisecond
	// plenty is how many times its headroom a volume keeps while there is room.
	plenty = 2
)

// begin probes the disk and starts balancing.
func (r *balancer) begin(dir string, log *slog.Logger) error {
	r.dir, r.log, r.open, r.joined = dir, log, make(map[string]*member), make(chan struct{}, 1)
	err := probe(dir)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		log.Warn("this disk cannot be reserved: when it is full, files in sandboxes may be lost", "dir", dir)
		return nil
	case errors.Is(layer.Full(err), dormouse.ErrFull): // then it can
	case err != nil:
		return fmt.Errorf("look what the disk can do: %w", err)
	}
	r.supported = true
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	r.stop = stop
	r.running.Go(func() { r.run(ctx) })
	return nil
}

const probePrefix = ".probe-"

// probe allocates a block on a disk and punches it out again.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, probePrefix+"*")
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

func (r *balancer) end() {
	if r.stop != nil {
		r.stop()
		r.running.Wait()
	}
}

// join keeps a volume in balance until leave is called as often, or remove once.
func (r *balancer) join(v Volume, most int64) {
	if !r.supported {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[v.Dir] == nil {
		r.open[v.Dir] = &member{Volume: v, most: most}
	}
	r.open[v.Dir].users++
	select {
	case r.joined <- struct{}{}:
	default:
	}
}

func (r *balancer) leave(v Volume) {
	r.mu.Lock()
	e := r.open[v.Dir]
	if e == nil {
		r.mu.Unlock()
		return
	}
	if e.users--; e.users > 0 {
		r.mu.Unlock()
		return
	}
	delete(r.open, v.Dir)
	r.mu.Unlock()
	e.close()
}

// remove returns once the balancer does not touch a volume any more, which may then be
// closed.
func (r *balancer) remove(v Volume) {
	r.mu.Lock()
	e := r.open[v.Dir]
	delete(r.open, v.Dir)
	r.mu.Unlock()
	if e != nil {
		e.close()
	}
}

func (e *member) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

func (r *balancer) run(ctx context.Context) {
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
			if err != nil && wrong[e.Dir] != err.Error() { // once, and not every time
				wrong[e.Dir] = err.Error()
				r.log.WarnContext(ctx, "room for a session not reserved", "session", e.Session, "error", err)
			}
		}
		_ = sleep.For(ctx, pause)
	}
}

// balance gives a volume the headroom that the disk can spare, or takes back what others
// need more.
func (e *member) balance(dir string, volumes int) (did bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, nil
	}
	on, err := statDisk(dir)
	if err != nil {
		return false, err
	}
	times := int64(plenty)
	if on.spare() == 0 {
		times = 1
	}
	return e.Volume.balance(on.headroom(e.most, volumes), on.spare(), times)
}
