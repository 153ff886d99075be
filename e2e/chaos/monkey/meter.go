package monkey

import (
	"context"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// meters reads the metrics of each life of each server, as often as it can: the
// last metrics of a killed server are not stored anywhere else.
type meters struct {
	fleet  *rig.Fleet
	client *rig.Client
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	last map[*rig.Life]reading // guarded by mu
}

type reading struct{ stale, taken int }

func newMeters(f *rig.Fleet) *meters {
	m := &meters{fleet: f, client: f.Client(), last: make(map[*rig.Life]reading)}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	for _, k := range f.Keepers {
		m.done.Go(func() {
			for ctx.Err() == nil {
				if l, err := k.Live(ctx); err == nil {
					m.read(ctx, l)
				}
				_ = sleep.For(ctx, 200*time.Millisecond)
			}
		})
	}
	return m
}

func (m *meters) close() {
	m.stop()
	m.done.Wait()
	m.client.Close()
}

// read asks a life what it has counted so far. One that does not answer has said
// all it will.
func (m *meters) read(ctx context.Context, l *rig.Life) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	text, err := m.client.Metrics(ctx, l)
	if err != nil {
		return
	}
	r := reading{stale: int(rig.Metric(text, "dormouse_stale_appends_total")), taken: int(rig.Metric(text, "dormouse_sessions_taken_total"))}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[l] = r
}

// sum is what all lives have counted.
func (m *meters) sum(ctx context.Context) (stale, taken int) {
	for _, k := range m.fleet.Keepers {
		if l, err := k.Live(ctx); err == nil {
			m.read(ctx, l)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.last {
		stale, taken = stale+r.stale, taken+r.taken
	}
	return stale, taken
}
