package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/store"
)

// Config is what sessions are made of.
type Config struct {
	Store  store.Store
	Blobs  blob.Store
	Driver sandbox.Driver
	Agent  Agent
	Logger *slog.Logger
	// Clock tells the time; time.Now if nil.
	Clock func() time.Time
	// DropAfter is how long an actor that has nothing to do stays loaded.
	DropAfter time.Duration
	// OnCommit is called with what was just committed, in order per session. It
	// must not block.
	OnCommit func(id dormouse.SessionID, events []dormouse.Event)

	family family // the sessions themselves, for actors that have children
}

// Agent runs one attempt of a turn.
type Agent interface {
	Run(ctx context.Context, j agent.Journal) error
}

// Sessions is every session of this server: it finds or loads the actor a
// command is for, and wakes sessions when something is due.
type Sessions struct {
	deps  *Config
	feeds *feeds
	loads chan struct{} // bounds the actors being loaded at once

	mu      sync.Mutex
	actors  map[dormouse.SessionID]*Actor // guarded by mu
	closing bool                          // guarded by mu
	kick    chan struct{}

	ctx     context.Context //nolint:containedctx // the life of the actors, which no request may end
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

// New returns sessions that are not yet woken by time: that is Run's work.
func New(c Config) (*Sessions, error) {
	if k, ok := c.Driver.(sandbox.Keeper); !ok || !k.KeepsWorkspace() {
		return nil, errors.New("the sandbox driver keeps no workspace, and there is nowhere to save one")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.DropAfter == 0 {
		c.DropAfter = 30 * time.Second
	}
	ctx, stop := context.WithCancelCause(context.Background()) //nolint:forbidigo // actors outlive every request; Close ends them
	const loadsAtOnce = 32
	s := &Sessions{
		deps: &c, feeds: newFeeds(), loads: make(chan struct{}, loadsAtOnce),
		actors: make(map[dormouse.SessionID]*Actor), kick: make(chan struct{}, 1), ctx: ctx, stop: stop,
	}
	c.family = s
	return s, nil
}

// Do asks a session's actor and returns once the answer is durable.
func (s *Sessions) Do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v Verb) error {
	for {
		a, err := s.actor(ctx, id)
		if err != nil {
			return err
		}
		err = a.send(ctx, message{by: by, verb: v})
		if !errors.Is(err, errDropped) {
			return err
		}
		select {
		case <-a.quit:
			if a.failed != nil {
				return a.failed
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Peek returns a session's state as the log has it now.
func (s *Sessions) Peek(ctx context.Context, id dormouse.SessionID) (State, error) {
	if err := id.Validate(); err != nil {
		return State{}, dormouse.ErrNotFound
	}
	state, _, err := fold(ctx, s.deps, id)
	if err == nil && state.Seq == 0 {
		err = fmt.Errorf("session %s: %w", id, dormouse.ErrNotFound)
	}
	return state, err
}

// Created returns what a session was made with.
func (s *Sessions) Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error) {
	return created(ctx, s.deps, id)
}

// Events reads history with its payloads: at most limit events, fewer if they are
// large or many, none only at the end.
func (s *Sessions) Events(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	return readSome(ctx, s.deps, id, after, limit)
}

// Follow reads a session from a cursor on, live. A cursor from the future is
// refused: it is not of this session.
func (s *Sessions) Follow(ctx context.Context, id dormouse.SessionID, after uint64) (*Follower, error) {
	row, err := s.deps.Store.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if after > row.Seq {
		return nil, fmt.Errorf("cursor %d is beyond the log, which ends at %d: %w", after, row.Seq, dormouse.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, dormouse.ErrClosing
	}
	return s.feeds.follow(s.deps, id, after), nil
}

// Loaded counts the actors.
func (s *Sessions) Loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.actors)
}

// actor finds the actor of a session, or starts one.
func (s *Sessions) actor(ctx context.Context, id dormouse.SessionID) (*Actor, error) {
	s.mu.Lock()
	a := s.actors[id]
	s.mu.Unlock()
	if a != nil {
		return a, nil
	}
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("session: %w", dormouse.ErrNotFound)
	}
	if _, err := s.deps.Store.Session(ctx, id); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.actors[id]; a != nil {
		return a, nil
	}
	if s.closing {
		return nil, dormouse.ErrClosing
	}
	a = newActor(id, s.deps, s.feeds)
	s.actors[id] = a
	s.running.Go(func() { s.live(a) })
	return a, nil
}

// live runs an actor to its end.
func (s *Sessions) live(a *Actor) {
	s.loads <- struct{}{}
	a.loaded = sync.OnceFunc(func() { <-s.loads })
	err := a.run(s.ctx)
	a.loaded()
	if err != nil && !errors.Is(err, dormouse.ErrClosing) && !errors.Is(err, errRemoved) {
		a.slog.WarnContext(s.ctx, "actor dropped", "error", err)
		select {
		case <-s.ctx.Done():
		case <-time.After(retryFull): // what fails at once must not spin
		}
	}
	s.mu.Lock()
	delete(s.actors, a.id)
	s.mu.Unlock()
	close(a.done)
	select {
	case s.kick <- struct{}{}: // it may have left something due
	default:
	}
}

// wake loads a session that wants something.
func (s *Sessions) wake(id dormouse.SessionID) {
	if _, err := s.actor(s.ctx, id); err != nil && !errors.Is(err, dormouse.ErrClosing) {
		s.deps.Logger.WarnContext(s.ctx, "session not woken", "session", id, "error", err)
	}
}

// patrol is the longest that a due session waits to be noticed.
const patrol = 2 * time.Second

// Run wakes sessions when something of theirs is due, until ctx ends: at start
// those that a server before us left at work, later those whose alarm rings.
func (s *Sessions) Run(ctx context.Context) error {
	for {
		wait, err := s.wakeDue(ctx)
		if err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "due sessions not read", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return nil
		case <-s.kick:
			wait = 50 * time.Millisecond // a failing session must not spin
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
			}
		case <-time.After(wait):
		}
	}
}

func (s *Sessions) wakeDue(ctx context.Context) (time.Duration, error) {
	now := s.deps.Clock()
	due, err := s.deps.Store.Due(ctx, now, 10_000+s.Loaded())
	if err != nil {
		return patrol, err
	}
	for _, id := range due {
		s.wake(id)
	}
	next, err := s.deps.Store.NextDue(ctx, now)
	if err != nil || next.IsZero() {
		return patrol, err
	}
	return min(max(next.Sub(now), time.Millisecond), patrol), nil
}

// EndFollowers tells every follower that the server goes away.
func (s *Sessions) EndFollowers() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.feeds.end(dormouse.ErrClosing)
}

// Close stops the actors: each gives its attempts back, keeps its turns and lets
// go of its sandbox, which lives on.
func (s *Sessions) Close(ctx context.Context) error {
	s.EndFollowers()
	s.stop(dormouse.ErrClosing)
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop actors: %w", context.Cause(ctx))
	}
}
