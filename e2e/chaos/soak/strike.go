package soak

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// strikes kills, freezes and restarts, at instants that follow from the seed, until
// the load is over. When it returns every server moves.
func (h *half) strikes(ctx, over context.Context, load time.Duration) {
	h.killServers(over, load)
	for sleep.For(over, time.Duration(500+h.rand.IntN(3500))*time.Millisecond) == nil {
		n, frozen := h.rand.IntN(12), time.Duration(h.rand.Float64()*2*float64(lease))
		switch {
		case n < 2:
			h.hit(rig.Runner)
		case n < 4:
			h.hit(rig.Gofer)
		case n == 4:
			h.hit(rig.Both)
		case n < 8 && h.servers > 1:
			h.freeze(frozen)
		case n == 8 && h.servers > 1:
			if err := h.stores.Restart(ctx); err != nil {
				h.add(oracle.Stuck, "%v", err)
			}
			h.count(func(s *Summary) { s.Restarts++ })
		}
	}
	h.thawing.Wait()
	for _, k := range h.fleet.Keepers {
		if _, err := k.Live(ctx); err != nil && ctx.Err() == nil {
			h.add(oracle.Stuck, "a server is not there: %v", err)
		}
	}
}

// killServers kills those whose lives end in this round, each at its own instant
// within the first half of the load, and now and then once more while it recovers. All
// begin with the first round.
func (h *half) killServers(over context.Context, load time.Duration) {
	for i, k := range h.fleet.Keepers {
		wait := time.Duration(h.rand.Float64() * float64(load) / 2 / float64(h.servers))
		again, moment := h.rand.IntN(3) == 0, time.Duration(h.rand.IntN(300))*time.Millisecond
		if (h.rounds+i*h.life/h.servers)%h.life != 0 && h.rounds > 0 {
			continue
		}
		if sleep.For(over, wait) != nil {
			return
		}
		h.kill(over, k)
		if again && sleep.For(over, moment) == nil {
			h.kill(over, k)
		}
	}
}

// kill is kill -9 for a server, which is started again at once.
func (h *half) kill(ctx context.Context, k *rig.Keeper) {
	if l, err := k.Live(ctx); err == nil {
		l.Kill()
		h.count(func(s *Summary) { s.Kills++ })
	}
}

// hit is kill -9 for a part of one sandbox.
func (h *half) hit(p rig.Part) {
	if h.fleet.Keepers[0].KillKernel(p, h.rand.IntN) {
		h.count(func(s *Summary) { s.Kills++ })
	}
}

// freeze has one server stand still for a while, but never the last that moves.
func (h *half) freeze(d time.Duration) {
	var moving []*rig.Life
	for _, k := range h.fleet.Keepers {
		if l := k.Now(); l != nil && !l.Frozen() {
			moving = append(moving, l)
		}
	}
	if len(moving) < 2 {
		return
	}
	thawed := moving[h.rand.IntN(len(moving))].FreezeFor(d)
	h.thawing.Go(func() { <-thawed })
	h.count(func(s *Summary) { s.Freezes++ })
}
