package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

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
	for len(batch) > 0 {
		n := batchable(batch)
		err := a.commit(ctx, batch[:n]...)
		if batch = batch[n:]; err == nil {
			continue
		}
		for _, left := range batch {
			left.reply <- ErrDropped // the next actor takes them
		}
		if m.act != nil {
			m.reply <- err
		}
		return err
	}
	if m.act == nil {
		return nil
	}
	err := m.act(ctx)
	a.checkDamage(ctx, err)
	m.reply <- err
	return nil
}

// batchable is how many messages can share a commit. One that another session sends has
// its own, since it is refused with all of it.
func batchable(batch []message) int {
	i := slices.IndexFunc(batch, func(m message) bool { return law.Sender(m.verb) != nil })
	switch i {
	case -1:
		return len(batch)
	case 0:
		return 1
	}
	return i
}

// do commits one verb of the actor's own.
func (a *Actor) do(ctx context.Context, v law.Verb) error {
	return a.doAs(ctx, dormouse.ActorServer, v)
}

// doAs commits one verb on behalf of an actor.
func (a *Actor) doAs(ctx context.Context, by dormouse.Actor, v law.Verb) error {
	m := message{by: by, verb: v, reply: make(chan error, 1)}
	if err := a.commit(ctx, m); err != nil {
		return err
	}
	return <-m.reply
}

// commit makes the answers to messages durable, then applies them, then publishes.
// It returns an error only if the actor can no longer trust what it believes.
func (a *Actor) commit(ctx context.Context, batch ...message) error {
	if err := a.lease.Holds(); err != nil { // even an answer that changes nothing would be an old one
		for _, m := range batch {
			m.reply <- err
		}
		a.broken = err
		return err
	}
	next := a.state
	var events []dormouse.Event
	var rows dormouse.Rows
	var asked, repeated []message
	fresh := make(map[string]dormouse.Event) // what ids were given to in this batch: in no row yet
	for _, m := range batch {
		c, err := a.command(ctx, m)
		if err != nil {
			a.checkDamage(ctx, err)
			m.reply <- err
			continue
		}
		for _, id := range law.ClientIDs(c.Verb) {
			if e, again := fresh[id]; again {
				c.Given = withGiven(c.Given, id, e)
			}
		}
		d, err := law.Decide(next, c)
		if err != nil {
			m.reply <- err
			continue
		}
		added := d.Events
		next = d.State
		law.Merge(&rows, d.Rows)
		for _, g := range d.Rows.ClientIDs {
			fresh[g.ID] = added[g.Seq-added[0].Seq]
		}
		events = append(events, added...)
		if len(added) == 0 && len(c.Given) > 0 {
			repeated = append(repeated, m)
		} else {
			asked = append(asked, m)
		}
	}
	var err error
	if len(events) > 0 {
		law.Finish(&rows, next)
		err = a.write(ctx, events, next, rows, law.Sender(batch[0].verb))
	}
	for _, m := range asked {
		m.reply <- err
	}
	repeatErr := err // what they repeat may be in this very batch
	if repeatErr == nil {
		repeatErr = law.ErrRepeated
	}
	for _, m := range repeated {
		m.reply <- repeatErr
	}
	if err == nil || transient(err) {
		return nil
	}
	a.broken = err
	return err
}

// command completes a verb with what the law may not find out itself.
func (a *Actor) command(ctx context.Context, m message) (law.Command, error) {
	c := law.Command{By: m.by, Now: law.Stamp(a.deps.Clock()), Epoch: a.epoch, Verb: m.verb}
	if a.sandbox.live != nil {
		c.Reached = a.sandbox.generation
	}
	var err error
	if c.Given, err = a.log.ByClientID(ctx, a.id, law.ClientIDs(m.verb)...); err != nil {
		return c, fmt.Errorf("look up ids: %w", err)
	}
	needs := law.Lookups(m.verb)
	if needs&law.LookupRights != 0 {
		config, err := a.agentConfig(ctx, a.state.Config)
		if err != nil {
			return c, err
		}
		c.Verb = law.WithRights(m.verb, *config)
	}
	if needs&law.LookupOpenCalls != 0 {
		if c.Seen, err = a.openTexts(ctx); err != nil {
			return c, err
		}
		c.Counted = a.openUsage()
	}
	return c, nil
}

// withGiven adds to what ids were given to.
func withGiven(given map[string]dormouse.Event, id string, e dormouse.Event) map[string]dormouse.Event {
	if given == nil {
		given = make(map[string]dormouse.Event)
	}
	given[id] = e
	return given
}

// openTexts reads what was already seen of the model calls that are open.
func (a *Actor) openTexts(ctx context.Context) (map[dormouse.OpID]string, error) {
	seen := make(map[dormouse.OpID]string)
	for _, op := range a.state.Ops {
		if op.Kind != dormouse.OpModel {
			continue
		}
		text, err := a.log.SeenText(ctx, a.id, op.ID)
		if err != nil {
			return nil, err
		}
		seen[op.ID] = text
	}
	return seen, nil
}

// openUsage is what the providers of open model calls have counted, and forgets the
// others.
func (a *Actor) openUsage() map[dormouse.OpID]dormouse.ModelUsage {
	counted := make(map[dormouse.OpID]dormouse.ModelUsage)
	a.usageSoFar.Range(func(id, u any) bool {
		op, _ := id.(dormouse.OpID)
		if _, open := a.state.Op(op); open {
			counted[op], _ = u.(dormouse.ModelUsage)
		} else {
			a.usageSoFar.Delete(op)
		}
		return true
	})
	return counted
}

// cacheEvery is how many events may follow the cached fold.
const cacheEvery = 256

// write makes events durable, and then applies them. A refusal that certainly changed
// nothing leaves the state as it was.
func (a *Actor) write(ctx context.Context, events []dormouse.Event, next law.State, rows dormouse.Rows, under *dormouse.Fence) error {
	crashBefore(events)
	stored, err := history.Spill(ctx, a.deps.Blobs, events)
	if err != nil {
		return err
	}
	b := store.Batch{Session: a.id, Epoch: a.epoch, Under: under, After: a.state.Seq, Events: stored, Rows: &rows}
	if a.damage == nil && next.Seq-a.cached >= cacheEvery {
		crash.At(crash.StateCaching)
		b.State = law.CacheState(next)
	}
	if err := a.appendBatch(b); err != nil {
		return fmt.Errorf("append to %s: %w", a.id, err)
	}
	a.state = next
	if b.State != nil {
		a.cached = next.Seq
	}
	a.keepBodies(events)
	a.extendTranscripts(events)
	crashAfter(events)
	a.deps.Committed(a.id, events) // first: a follower may look at what it counts
	a.feeds.Publish(a.id, events)
	return nil
}

// appendBatch makes a batch durable, as long as the lease holds: a server that writes
// the session after that must not be held up by an answer that comes late.
func (a *Actor) appendBatch(b store.Batch) error {
	if err := a.lease.Holds(); err != nil {
		return err
	}
	write := func() error { return a.deps.Store.Append(a.lease.Writes(), b) }
	var err error
	if a.state.Terminated != nil { // it goes, and what it has on the disk with it
		err = a.deps.withReserve(write)
	} else {
		err = write()
	}
	cause := context.Cause(a.lease.Writes()) // not nil once the lease is lost
	switch {
	case errors.Is(err, dormouse.ErrUnknownOutcome):
	case errors.Is(err, store.ErrStaleSender): // not we are
	case errors.Is(err, dormouse.ErrLeaseLost):
		a.lease.CountStale()
	case cause != nil && errors.Is(err, cause):
		return fmt.Errorf("%w: %w", dormouse.ErrLeaseLost, err)
	case errors.Is(err, dormouse.ErrConflict):
		// The log does not end where we left it, as when a database was put back. Our
		// state is wrong, not the request.
		return fmt.Errorf("%w: the log goes on from elsewhere: %s", dormouse.ErrLeaseLost, err.Error())
	}
	return err
}

// keepBodies keeps the bodies of prompts and commands that will be taken in a
// moment.
func (a *Actor) keepBodies(events []dormouse.Event) {
	const few = 8
	for _, e := range events {
		switch {
		case (e.Type == dormouse.PromptQueued || e.Type == dormouse.ExecAsked) && len(a.recentBodies) < few:
			a.recentBodies[e.ID] = e
		case e.Type == dormouse.PromptCancelled:
			for _, id := range law.Payload[dormouse.Prompts](e).Prompts {
				delete(a.recentBodies, id)
			}
		}
	}
}
