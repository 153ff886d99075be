package actor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// Actor is the only writer of one session. It decides, makes the answer
// durable, believes it, makes the world match Want, and tells followers.
type Actor struct {
	id     dormouse.SessionID
	deps   *Config
	log    history.Reader
	feeds  *feed.Feeds
	lease  Lease
	logger *slog.Logger
	inbox  chan message // unbuffered: what was taken is answered

	loaded func() // called once the state is there
	failed error  // why it could not be loaded; set before quit is closed
	tenant string // whose the session is; set before loaded is called

	// The fields below belong to the goroutine in Run.
	epoch           store.Epoch
	state           law.State
	cached          uint64 // the seq of the newest cached fold
	config          *dormouse.AgentConfig
	configAt        uint64                              // the event that config is of
	recentBodies    map[dormouse.EventID]dormouse.Event // bodies of prompts queued a moment ago
	transcripts     map[dormouse.ThreadID]*transcript
	attempts        map[dormouse.TurnID]*attempt
	kills           map[dormouse.OpID]bool
	execs           map[dormouse.EventID]context.CancelFunc // being run or ended
	children        map[dormouse.SessionID]bool             // being made or ended
	notifyingParent bool                                    // that the session has ended
	notifyDelay     time.Duration                           // after a failure; it doubles
	removeDelay     time.Duration                           // while its parent is damaged; it doubles
	sandbox         heldSandbox
	snapshot        takingSnapshot
	liveAhead       *liveness          // for the snapshot of a turn that ends
	diskLogged      bool               // the sandbox waits for room on the disk, which is logged
	compacting      bool               // its layer chain
	stopWaiting     context.CancelFunc // stops waiting for a slot; nil if it does not
	failedFreezes   int                // of the sandbox that is stopping
	checkIdle       bool               // whether the sandbox is idle
	waiters         []waiter
	// snapshotTaken wakes the goroutines that wait until every tool call has its
	// snapshot.
	snapshotTaken []chan struct{}
	visitors      []*visitor // that wait for the sandbox
	postponed     bool       // a step that could not be done now is tried again in a moment
	damage        error      // why the log cannot be read; the state is then what could be salvaged
	broken        error      // why what the actor believes can no longer be trusted
	lastUsed      time.Time  // when the sandbox was last wanted for something
	running       sync.WaitGroup
	quit          chan struct{} // closed when the actor takes no more reports

	usageSoFar  sync.Map     // of open model calls, what their providers have counted: dormouse.ModelUsage by dormouse.OpID
	visits      atomic.Int64 // visitors in the sandbox
	streams     atomic.Int64 // of them, open ones that may change files
	streamsEver atomic.Int64 // how many ever were
	lastLeft    atomic.Int64 // when the last of them left, as Unix nanoseconds
}

// message is a request to the actor: a verb to decide, or something to do in
// the actor's goroutine.
type message struct {
	by    dormouse.Actor
	verb  law.Verb
	act   func(ctx context.Context) error
	reply chan error
}

// New returns the actor of a session, under a lease.
func New(id dormouse.SessionID, deps *Config, l Lease) *Actor {
	return &Actor{
		id: id, deps: deps, log: deps.reader(), feeds: deps.Feeds, lease: l, logger: deps.Logger.With("session", id),
		inbox: make(chan message), quit: make(chan struct{}),
		recentBodies: make(map[dormouse.EventID]dormouse.Event),
		transcripts:  make(map[dormouse.ThreadID]*transcript),
		attempts:     make(map[dormouse.TurnID]*attempt),
		kills:        make(map[dormouse.OpID]bool),
		execs:        make(map[dormouse.EventID]context.CancelFunc),
		children:     make(map[dormouse.SessionID]bool),
	}
}

// ErrDropped says that an actor ended before it took a message.
var ErrDropped = errors.New("actor was dropped")

// Do asks the actor for something and returns once the answer is durable.
func (a *Actor) Do(ctx context.Context, by dormouse.Actor, v law.Verb) error {
	return a.send(ctx, message{by: by, verb: v})
}

// See shows the state that the actor has, without a look at the store.
func (a *Actor) See(ctx context.Context, see func(law.State)) error {
	return a.send(ctx, message{act: func(context.Context) error { see(a.state); return nil }})
}

// Evict hibernates the sandbox if it is not in use.
func (a *Actor) Evict(ctx context.Context) error {
	return a.send(ctx, message{by: dormouse.ActorServer, act: a.evict})
}

// Quit is closed when the actor takes no more requests.
func (a *Actor) Quit() <-chan struct{} { return a.quit }

// Err says why the actor could not be loaded. It is set before Quit is closed.
func (a *Actor) Err() error { return a.failed }

// Tenant says whose the session is. It is known once the actor is loaded.
func (a *Actor) Tenant() string { return a.tenant }

// Epoch is the one that the actor has claimed, 0 if it could not. It may be called only
// after Run has returned.
func (a *Actor) Epoch() store.Epoch { return a.epoch }

// send hands a message to the actor and waits for its answer.
func (a *Actor) send(ctx context.Context, m message) error {
	m.reply = make(chan error, 1)
	select {
	case a.inbox <- m:
	case <-a.quit:
		return ErrDropped
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

// Run owns the session until it is idle, its lease is lost or ctx ends. It calls loaded
// once the state is there.
func (a *Actor) Run(ctx context.Context, loaded func()) (err error) {
	defer close(a.quit)
	a.loaded = loaded
	if err := a.load(ctx); err != nil {
		if errors.Is(err, dormouse.ErrDamaged) {
			err = a.runDamaged(ctx, err)
		}
		if err != nil {
			a.failed = err
			return err
		}
	}
	a.loaded()
	ctx, stop := context.WithCancelCause(ctx)
	defer func() {
		if bug := recover(); bug != nil {
			panic(bug) // at once: what the actor started waits for answers that will not come
		}
		stop(err)
		a.shutDown(ctx, err)
		if damage := a.ownDamage(err); damage != nil {
			a.markDamaged(ctx, damage)
		}
	}()
	a.lastUsed = a.deps.Clock()
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
			a.lastUsed = a.deps.Clock()
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
	if a.epoch, err = a.deps.Store.Claim(ctx, a.id, 0); err != nil {
		return fmt.Errorf("claim %s: %w", a.id, err)
	}
	crash.At(crash.LeaseClaimed)
	if a.deps.Fence != nil {
		if err := a.deps.Fence(ctx); err != nil {
			return fmt.Errorf("hold off whoever had %s: %w", a.id, err)
		}
	}
	var row dormouse.SessionRow
	a.state, a.cached, row, err = a.log.FoldWithRow(ctx, a.id)
	if err == nil && row.Damage != "" { // perhaps before what is cached
		a.state, a.cached, row, err = a.log.Uncached().FoldWithRow(ctx, a.id)
	}
	if err != nil {
		return err
	}
	if row.Seq < a.state.Seq {
		if err := a.rebuildRows(ctx, row); err != nil {
			return err
		}
	}
	a.tenant = a.state.Tenant
	if row.Damage == "" {
		return nil
	}
	return a.clearDamage(ctx)
}

// rebuildRows writes the rows of a session anew if its log is whole but goes on after the
// end that its row says. Without that nothing could be appended.
func (a *Actor) rebuildRows(ctx context.Context, row dormouse.SessionRow) error {
	a.logger.WarnContext(ctx, "rebuilding the rows of the session from its log", "row", row.Seq, "log", a.state.Seq)
	if err := a.lease.Holds(); err != nil {
		return err
	}
	rows, err := history.Rebuild(ctx, a.deps.Store, a.deps.Blobs, a.id)
	if err != nil {
		return err
	}
	a.cached = 0 // it goes with the rows
	err = a.deps.Store.Rebuild(a.lease.Writes(), a.id, rows)
	if errors.Is(err, dormouse.ErrConflict) { // another server has appended, which owns the session now
		return fmt.Errorf("%w: %s", dormouse.ErrLeaseLost, err.Error())
	}
	return err
}

// maxSleep is how long a loaded actor may take to notice that the clock was
// set.
const maxSleep = 5 * time.Second

// timer returns when something is due next, and whether the actor has been idle for so
// long that it should be unloaded.
func (a *Actor) timer() (<-chan time.Time, bool) {
	if a.postponed {
		return nil, false // what is due is tried again then
	}
	now := a.deps.Clock()
	at := law.Alarm(a.state)
	if len(a.attempts)+len(a.kills)+len(a.waiters)+len(a.visitors)+len(a.children) == 0 && !a.notifyingParent && a.sandbox.idle() && a.snapshot.id == "" && !a.compacting && !law.Want(a.state).Busy() {
		if a.lastUsed.After(now) {
			a.lastUsed = now // the clock was set back
		}
		drop := a.lastUsed.Add(a.deps.DropAfter)
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
	return time.After(min(max(at.Sub(now), time.Millisecond), maxSleep)), false
}

// shutDown waits for the goroutines of the actor, whose context has ended. After a clean
// stop it gives attempts back; after a lost lease it has none to give.
func (a *Actor) shutDown(ctx context.Context, cause error) {
	finished := make(chan struct{})
	go func() { a.running.Wait(); close(finished) }()
	for waiting := true; waiting; {
		select {
		case m := <-a.inbox:
			if m.act == nil {
				m.reply <- ErrDropped
				continue
			}
			m.reply <- m.act(ctx) // what was begun reports how it ended
		case <-finished:
			waiting = false
		}
	}
	a.sandbox.release(cause)
	if lost := cause != nil && !errors.Is(cause, dormouse.ErrClosing); lost {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, w := range law.Want(a.state).Attempts {
		if w.Epoch != a.epoch {
			continue
		}
		if err := a.do(ctx, law.ReturnAttempt{Turn: w.Turn}); err != nil {
			a.logger.WarnContext(ctx, "attempt not returned", "turn", w.Turn, "error", err)
		}
	}
	if a.damage == nil && a.state.Seq-a.cached >= cacheEvery/8 {
		crash.At(crash.StateCaching)
		b := store.Batch{Session: a.id, Epoch: a.epoch, After: a.state.Seq, State: law.CacheState(a.state)}
		if err := a.appendBatch(b); err != nil {
			a.logger.DebugContext(ctx, "state not cached", "error", err)
		}
	}
}
