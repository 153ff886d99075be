package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

// Actor is the only writer of one session. It decides, makes the answer
// durable, believes it, makes the world match Want, and tells followers.
type Actor struct {
	id    dormouse.SessionID
	deps  *Config
	feeds *feeds
	lease *lease
	slog  *slog.Logger
	inbox chan message  // unbuffered: what was taken is answered
	ready chan struct{} // closed when it is loaded, or cannot be
	done  chan struct{} // closed when nothing of the actor is left

	loaded func() // called once the state is there
	failed error  // why it could not be loaded; set before quit is closed

	// The fields below belong to the goroutine in run.
	epoch    store.Epoch
	state    State
	cached   uint64 // the seq of the newest cached fold
	config   *dormouse.AgentConfig
	fresh    map[dormouse.EventID]dormouse.Event // bodies of prompts queued a moment ago
	convos   map[dormouse.ThreadID]*convo
	attempts map[dormouse.TurnID]*attempt
	kills    map[dormouse.OpID]bool
	children map[dormouse.SessionID]bool // being made or ended
	box      box
	waiters  []waiter
	again    bool      // a step that could not be done now is tried again in a moment
	broken   error     // why what the actor believes can no longer be trusted
	used     time.Time // when somebody last wanted something
	running  sync.WaitGroup
	quit     chan struct{} // closed when the actor takes no more reports
}

// message is a request to the actor: a verb to decide, or something to do in
// the actor's goroutine.
type message struct {
	by    dormouse.Actor
	verb  Verb
	act   func(ctx context.Context) error
	reply chan error
}

func newActor(id dormouse.SessionID, deps *Config, feeds *feeds, l *lease) *Actor {
	return &Actor{
		id: id, deps: deps, feeds: feeds, lease: l, slog: deps.Logger.With("session", id),
		inbox: make(chan message), ready: make(chan struct{}), done: make(chan struct{}), quit: make(chan struct{}),
		fresh:    make(map[dormouse.EventID]dormouse.Event),
		convos:   make(map[dormouse.ThreadID]*convo),
		attempts: make(map[dormouse.TurnID]*attempt),
		kills:    make(map[dormouse.OpID]bool),
		children: make(map[dormouse.SessionID]bool),
	}
}

// errDropped says that an actor ended before it took a message.
var errDropped = errors.New("actor was dropped")

// send hands a message to the actor and waits for its answer.
func (a *Actor) send(ctx context.Context, m message) error {
	m.reply = make(chan error, 1)
	select {
	case a.inbox <- m:
	case <-a.quit:
		return errDropped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.act != nil {
		return <-m.reply // it writes to what the sender returns
	}
	select {
	case err := <-m.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run owns the session until it is idle, its lease is lost or ctx ends.
func (a *Actor) run(ctx context.Context) (err error) {
	defer close(a.quit)
	if a.failed = a.load(ctx); a.failed != nil {
		return a.failed
	}
	a.loaded()
	ctx, stop := context.WithCancelCause(ctx)
	defer func() { stop(err); a.leave(ctx, err) }()
	a.used = a.deps.Clock()
	for {
		if err := a.reconcile(ctx); err != nil {
			return err
		}
		wait, drop := a.timer()
		if drop {
			crash.At(crash.LeaseRelease)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-a.inbox:
			a.used = a.deps.Clock()
			if err := a.handle(ctx, m); err != nil {
				return err
			}
			if a.broken != nil {
				return a.broken
			}
		case <-wait:
		}
	}
}

// load takes the lease and folds what the log holds.
func (a *Actor) load(ctx context.Context) (err error) {
	crash.At(crash.LeaseClaiming)
	if a.epoch, err = a.deps.Store.Claim(ctx, a.id); err != nil {
		return fmt.Errorf("claim %s: %w", a.id, err)
	}
	crash.At(crash.LeaseClaimed)
	a.state, a.cached, err = fold(ctx, a.deps, a.id)
	return err
}

// maxBatch bounds the commands decided together.
const maxBatch = 64

// handle decides a message and whatever else waits, as one commit.
func (a *Actor) handle(ctx context.Context, m message) error {
	var batch []message
	for more := true; more && m.act == nil; {
		batch = append(batch, m)
		if len(batch) == maxBatch {
			m = message{}
			break
		}
		select {
		case m = <-a.inbox:
		default:
			m, more = message{}, false
		}
	}
	if len(batch) > 0 {
		if err := a.commit(ctx, batch...); err != nil {
			if m.act != nil {
				m.reply <- err
			}
			return err
		}
	}
	if m.act == nil {
		return nil
	}
	m.reply <- m.act(ctx)
	return nil
}

// do commits one verb of the actor's own.
func (a *Actor) do(ctx context.Context, v Verb) error {
	m := message{by: dormouse.ActorServer, verb: v, reply: make(chan error, 1)}
	if err := a.commit(ctx, m); err != nil {
		return err
	}
	return <-m.reply
}

// commit makes the answers to messages durable, then believes them, then tells.
// It returns an error only if the actor can no longer trust what it believes.
func (a *Actor) commit(ctx context.Context, batch ...message) error {
	if err := a.lease.holds(); err != nil { // even an answer that changes nothing would be an old one
		for _, m := range batch {
			m.reply <- err
		}
		a.broken = err
		return err
	}
	next := a.state
	var events []dormouse.Event
	var asked []message
	queued := make(map[dormouse.EventID]dormouse.PromptRecord)
	for _, m := range batch {
		c, err := a.command(ctx, m)
		if err != nil {
			m.reply <- err
			continue
		}
		if v, ok := c.Verb.(Prompt); ok && v.Prior == nil {
			if p, again := queued[v.ID]; again { // in no row yet, and perhaps cancelled already
				v.Prior = &p
				c.Verb = v
			}
		}
		added, err := Decide(next, c)
		if err != nil {
			m.reply <- err
			continue
		}
		for _, e := range added {
			next = Apply(next, e)
			if e.Type == dormouse.PromptQueued {
				queued[e.ID] = dormouse.PromptRecord{ID: e.ID, Body: payload[bodyOnly](e).Body}
			}
		}
		events = append(events, added...)
		asked = append(asked, m)
	}
	var err error
	if len(events) > 0 {
		err = a.write(ctx, events)
	}
	for _, m := range asked {
		m.reply <- err
	}
	if err == nil || errors.Is(err, dormouse.ErrFull) {
		return nil
	}
	a.broken = err
	return err
}

// command completes a verb with what the law may not find out itself.
func (a *Actor) command(ctx context.Context, m message) (Command, error) {
	c := Command{By: m.by, Now: stamp(a.deps.Clock()), Epoch: a.epoch, Keeps: true, Verb: m.verb}
	switch v := m.verb.(type) {
	case Prompt:
		prior, err := a.deps.Store.Prompt(ctx, a.id, v.ID)
		switch {
		case err == nil:
			v.Prior = &prior
			c.Verb = v
		case !errors.Is(err, dormouse.ErrNotFound):
			return c, fmt.Errorf("look up prompt %s: %w", v.ID, err)
		}
	case Spawn:
		config, err := a.agentConfig(ctx)
		if err != nil {
			return c, err
		}
		v.Rights = *config
		c.Verb = v
	case Settle:
		if spawn, ok := v.Do.(Spawn); ok {
			config, err := a.agentConfig(ctx)
			if err != nil {
				return c, err
			}
			spawn.Rights = *config
			v.Do = spawn
			c.Verb = v
		}
	case Interrupt, Continue, Hibernate, Terminate, Archive, Delete, Recover, FailAttempt:
		seen, err := a.seen(ctx)
		if err != nil {
			return c, err
		}
		c.Seen = seen
	case Create, Cancel, Answer, OpenThread, Schedule, Unschedule, EndChild, Describe, Retry, Wake, Take, Fire,
		StartAttempt, ReturnAttempt, StartOp, FinishOp, LoseOp, Block, EndTurn, Warm,
		SandboxUp, SandboxGone, SandboxDown, TakeSnapshot, ChildUp, ChildDown, Tick:
	}
	return c, nil
}

// seen reads what was already seen of the model calls that are open.
func (a *Actor) seen(ctx context.Context) (map[dormouse.OpID]string, error) {
	seen := make(map[dormouse.OpID]string)
	for _, op := range a.state.Ops {
		if op.Kind != dormouse.OpModel {
			continue
		}
		text, err := seenText(ctx, a.deps.Store, a.id, op.ID)
		if err != nil {
			return nil, err
		}
		seen[op.ID] = text
	}
	return seen, nil
}

// cacheEvery is how many events may follow the cached fold.
const cacheEvery = 256

// write makes events durable and believes them. A refusal that surely changed
// nothing leaves the state as it was.
func (a *Actor) write(ctx context.Context, events []dormouse.Event) error {
	pointsBefore(events)
	next, rows := Project(a.state, events)
	stored, err := spill(ctx, a.deps.Blobs, events)
	if err != nil {
		return err
	}
	b := store.Batch{Session: a.id, Epoch: a.epoch, After: a.state.Seq, Events: stored, Rows: &rows}
	if next.Seq-a.cached >= cacheEvery {
		crash.At(crash.StateCaching)
		b.State = cacheState(next)
	}
	if err := a.append(b); err != nil {
		return fmt.Errorf("append to %s: %w", a.id, err)
	}
	a.state = next
	if b.State != nil {
		a.cached = next.Seq
	}
	a.remember(events)
	a.converse(events)
	pointsAfter(events)
	a.deps.committed(a.id, events) // first: who follows may look at what it counts
	a.feeds.publish(a.id, events)
	return nil
}

// append makes a batch durable, as long as the lease holds: whoever else writes
// the session must not be held up by an answer that comes late.
func (a *Actor) append(b store.Batch) error {
	if err := a.lease.holds(); err != nil {
		return err
	}
	err := appendBatch(a.lease.writes, a.deps.Store, a.state, b)
	switch {
	case errors.Is(err, dormouse.ErrUnknownOutcome):
	case errors.Is(err, dormouse.ErrLeaseLost):
		a.lease.stale.Add(1)
	case errors.Is(err, errCut):
		return fmt.Errorf("%w: %w", dormouse.ErrLeaseLost, err)
	}
	return err
}

// remember keeps the bodies of prompts that will be taken in a moment.
func (a *Actor) remember(events []dormouse.Event) {
	const few = 8
	for _, e := range events {
		switch {
		case e.Type == dormouse.PromptQueued && len(a.fresh) < few:
			a.fresh[e.ID] = e
		case e.Type == dormouse.PromptCancelled:
			for _, id := range payload[dormouse.Prompts](e).Prompts {
				delete(a.fresh, id)
			}
		}
	}
}

// longestNap is how long a loaded actor may take to notice that the clock was
// set.
const longestNap = 5 * time.Second

// timer returns when something is due next, and whether the actor has been of
// no use for so long that it should go.
func (a *Actor) timer() (<-chan time.Time, bool) {
	if a.again {
		return nil, false // what is due could not be done, and is looked at then
	}
	now := a.deps.Clock()
	at := Alarm(a.state)
	if len(a.attempts)+len(a.kills)+len(a.waiters)+len(a.children) == 0 && a.box.free() && !Want(a.state).Busy() {
		if a.used.After(now) {
			a.used = now // the clock was set back
		}
		drop := a.used.Add(a.deps.DropAfter)
		if !drop.After(now) {
			return nil, true
		}
		if at.IsZero() || drop.Before(at) {
			at = drop
		}
	}
	if at.IsZero() {
		return nil, false
	}
	return time.After(min(max(at.Sub(now), time.Millisecond), longestNap)), false
}

// leave waits for what the actor started, whose context has ended. A clean leave gives attempts back; after a
// lost lease there is nothing left to give.
func (a *Actor) leave(ctx context.Context, cause error) {
	finished := make(chan struct{})
	go func() { a.running.Wait(); close(finished) }()
	for waiting := true; waiting; {
		select {
		case m := <-a.inbox:
			if m.act == nil {
				m.reply <- errDropped
				continue
			}
			m.reply <- m.act(ctx) // what was begun reports how it ended
		case <-finished:
			waiting = false
		}
	}
	a.box.close()
	if lost := cause != nil && !errors.Is(cause, dormouse.ErrClosing); lost {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, w := range Want(a.state).Attempts {
		if w.Epoch != a.epoch {
			continue
		}
		if err := a.do(ctx, ReturnAttempt{Turn: w.Turn}); err != nil {
			a.slog.WarnContext(ctx, "attempt not given back", "turn", w.Turn, "error", err)
		}
	}
	if a.state.Seq-a.cached >= cacheEvery/8 {
		crash.At(crash.StateCaching)
		b := store.Batch{Session: a.id, Epoch: a.epoch, After: a.state.Seq, State: cacheState(a.state)}
		if err := a.append(b); err != nil {
			a.slog.DebugContext(ctx, "state not cached", "error", err)
		}
	}
}
