package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// half is the part of a run that one kind of store has.
type half struct {
	*soak
	name, store string
	servers     int
	time        time.Duration

	ctx        context.Context //nolint:containedctx // that of the followers
	copies     string
	stores     *rig.Stores
	fleet      *rig.Fleet
	client     *rig.Client
	witness    *rig.Witness
	models     *rig.Models
	population chan *member // those that no worker uses at the moment
	born       atomic.Int64
	chapters   atomic.Int64
	rand       *rand.Rand // of the strikes
	thawing    sync.WaitGroup

	life   int // how many rounds a server lives
	rounds int // so far
	ages   map[*rig.Life]int
	points map[string][]point
}

const (
	// lease is that of servers as they come.
	lease = 3 * time.Second
	// slack is how far the clock of a sandbox may be off the server's.
	slack = 300 * time.Millisecond
	// patience is how long a session may take for a chapter, whatever is struck
	// meanwhile.
	patience = 12 * play.SettleWithin
	// workers is how many sessions are worked with at once.
	workers = 12
)

// limits of a sandbox are small, so that many fit a small machine.
var limits = []string{
	"--sandbox-memory", "256M", "--sandbox-disk", "64M", "--sandbox-inodes", "4096", "--sandbox-pids", "64", "--sandbox-cpus", "1", "--drop-after", "500ms",
}

// run serves, and takes everything away in the end.
func (h *half) run(ctx context.Context) (err error) {
	h.ctx, h.copies = ctx, h.path(h.store, "copies")
	h.rand = rand.New(rand.NewPCG(h.Seed, uint64(h.servers)))
	h.ages, h.points = make(map[*rig.Life]int), make(map[string][]point)
	h.population = make(chan *member, h.Sessions)
	end := time.Now().Add(h.time)
	if err := os.MkdirAll(h.copies, 0o700); err != nil {
		return err
	}
	if h.models, err = rig.NewModels(); err != nil {
		return err
	}
	defer h.models.Close()
	if h.witness, err = rig.NewWitnessOfCopies(h.copies); err != nil {
		return err
	}
	defer h.witness.Close()
	h.witness.Dir = "/root" // what is gone back to is the workspace
	if h.stores, err = rig.NewStores(ctx, h.store, lease); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stores.Close()) }()
	store, drop, err := h.stores.Make(ctx)
	if err != nil {
		return err
	}
	defer drop()
	h.fleet = rig.NewFleet(ctx, rig.Server{
		Binary: h.Binary, Data: h.path(h.store, "data"), Store: store, Sandbox: rig.GVisor, Model: h.models.URL(), Log: h.path(h.store, "server.log"),
		Flags: append([]string{"--max-active", fmt.Sprint(max(1, h.Awake/h.servers))}, limits...), Patient: time.Minute,
	}, h.servers, nil)
	for _, k := range h.fleet.Keepers {
		k.Stubborn = store.Shared() // the database may not be there
	}
	h.client = h.fleet.Client()
	if h.servers > 1 {
		h.client.Patience = 2 * lease
	}
	h.fleet.Run()
	err = errors.Join(h.serve(ctx, end), h.fleet.Keepers[0].Clear())
	return err
}

// serve does it all, and ends with no server.
func (h *half) serve(ctx context.Context, end time.Time) error {
	defer h.fleet.Close()
	defer h.thawing.Wait()
	if err := h.populate(ctx); err != nil {
		return err
	}
	load := h.plan(time.Until(end))
	for time.Until(end) > load {
		if err := h.round(ctx, load); err != nil {
			return err
		}
	}
	slopes, missing := judge(h.name, h.points, h.Sessions, h.rounds, h.life)
	for _, s := range slopes {
		h.report("%s", s)
	}
	h.count(func(s *Summary) { s.Slopes, s.Rounds = append(s.Slopes, slopes...), s.Rounds+h.rounds })
	if len(missing) > 0 {
		return fmt.Errorf("%d rounds are too few to compare %v: more MINUTES, or fewer SESSIONS", h.rounds, missing)
	}
	return h.leave(ctx)
}

// plan decides how long the load of a round lasts, and for how many rounds a server
// lives. A life has several rounds, to see what a server accumulates; there are several
// lives, to see what they leave behind.
func (h *half) plan(left time.Duration) (load time.Duration) {
	const shortest, longest, enough, rest = 5 * time.Second, 30 * time.Second, 24, 8 * time.Second
	load = min(max(left/enough-rest, shortest), longest)
	h.life = min(max(int(left/(load+rest))/3, 4), 8)
	h.report("%s: %d sessions are there, rounds with %s of load, %d of them in a server's life", h.name, h.Sessions, load.Round(time.Second), h.life)
	return load
}

// populate makes the sessions, and has each live through as many chapters as it
// would have by now if there had always been as many: from the first round on as many
// are made and deleted as later, and there are as many of each age.
func (h *half) populate(ctx context.Context) error {
	young := make(chan *member, h.Sessions)
	for i := range h.Sessions {
		m := newMember(h)
		m.age = 1 + i%chapters // to be lived through
		young <- m
	}
	close(young)
	return h.work(ctx, func() *member { return <-young }, func(ctx context.Context, m *member) error {
		age := m.age
		m.age = 0
		for range age {
			if err := h.live(ctx, m); err != nil {
				return err
			}
		}
		h.population <- m
		return nil
	})
}

// work has workers do something with one session after the other, until there is
// none.
func (h *half) work(ctx context.Context, next func() *member, do func(context.Context, *member) error) error {
	var working sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		working.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				m := next()
				if m == nil {
					return
				}
				errs[i] = do(ctx, m)
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// round is a time of load, and the rest after it.
func (h *half) round(ctx context.Context, load time.Duration) error {
	over, done := context.WithTimeout(ctx, load)
	defer done()
	var striking sync.WaitGroup
	striking.Go(func() { h.strikes(ctx, over, load) })
	next := func() *member {
		select {
		case <-over.Done():
			return nil
		default:
		}
		select {
		case m := <-h.population:
			return m
		case <-over.Done():
			return nil
		}
	}
	err := h.work(ctx, next, func(ctx context.Context, m *member) error {
		m, err := h.visit(ctx, m)
		if err == nil {
			h.population <- m
		}
		return err
	})
	striking.Wait()
	if err != nil {
		return err
	}
	if err := h.rest(ctx); err != nil {
		return err
	}
	err = h.sample(ctx)
	h.rounds++
	return err
}

// visit runs a chapter of a session. A session that has had all its chapters is judged
// and deleted instead, and replaced by a new one.
func (h *half) visit(ctx context.Context, m *member) (*member, error) {
	if m.age < chapters {
		return m, h.live(ctx, m)
	}
	retiring, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	if err := m.retire(retiring); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m.wrong(oracle.Stuck, "%v", err)
	}
	h.count(func(s *Summary) { s.Judged++ })
	m = newMember(h)
	return m, h.live(ctx, m)
}

var errPatience = errors.New("that took too long")

// live is one chapter. A session that gets stuck is noted, and goes on.
func (h *half) live(ctx context.Context, m *member) error {
	within, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	err := m.chapter(within)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && m.Session == nil:
		return fmt.Errorf("%s: %w", m.Name, err)
	case err != nil:
		m.wrong(oracle.Stuck, "%v", err)
		m.age++
	}
	h.chapters.Add(1)
	h.count(func(s *Summary) { s.Chapters++ })
	return nil
}

// left notes what is there of a session that was deleted.
func (h *half) left(m *member, id dormouse.SessionID) {
	if left := h.fleet.Keepers[0].Left(id); len(left) > 0 {
		m.wrong(oracle.Diverged, "session %s was deleted and left %v", id, left)
	}
}
