package v1

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// promptReader reads the records of prompts.
type promptReader interface {
	Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error)
}

// collect gathers a page: the events of the log and then the queued prompts, or both in
// reverse. A queued event gets its place in the log when it is taken or cancelled. Once a
// page has begun with queued prompts, the next pages are of the same queue, so that
// nothing is missed or repeated when prompts leave it in between.
func (s *Server) collect(ctx context.Context, row session.Row, l listed) (*collected, error) {
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return nil, err
	}
	l.voided = voidedIn(state)
	p := &pager{Server: s, listed: l, session: row.Session, upto: state.Seq, collected: &collected{limit: l.limit}}
	if l.after.waited() {
		p.upto = min(l.after.upto, state.Seq)
	}
	queue := func(ctx context.Context) error { return p.queue(ctx, state) }
	steps := []func(context.Context) error{p.log, queue}
	if l.newest {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return p.collected, nil
}

// pager reads one page.
type pager struct {
	*Server
	listed
	*collected
	session dormouse.SessionID
	upto    uint64 // how far the log goes
}

// log adds what is in the log.
func (p *pager) log(ctx context.Context) error {
	if p.full() || p.after.waited() && !p.newest {
		return nil
	}
	var failed error
	add := func(e *dormouse.Event) bool {
		if e.Type == dormouse.PromptCancelled {
			if !p.voids(e) {
				failed = p.cancelled(ctx, e)
			}
		} else if e.Type != dormouse.PromptQueued {
			p.offer(e, cursor{place: place{seq: e.Seq}})
		}
		return failed == nil && !p.full()
	}
	var err error
	if p.newest {
		from := p.upto
		if p.after.set && !p.after.waited() {
			from = min(p.after.seq, from)
		}
		err = p.backwards(ctx, p.session, from, add)
	} else {
		err = p.forwards(ctx, p.session, max(p.after.seq, 1)-1, p.upto, add)
	}
	return errors.Join(err, failed)
}

// cancelled adds the prompts that were cancelled in the queue, at the place of their
// cancellation.
func (p *pager) cancelled(ctx context.Context, e *dormouse.Event) error {
	var left dormouse.Prompts
	if json.Unmarshal(e.Payload, &left) != nil {
		return nil //nolint:nilerr // what was lost of the log names nobody
	}
	for i := range left.Prompts {
		if p.newest {
			i = len(left.Prompts) - 1 - i
		}
		record, err := p.Sessions.Prompt(ctx, p.session, left.Prompts[i])
		if err != nil {
			return err
		}
		if err := p.asQueued(ctx, record.Seq, cursor{place: place{e.Seq, i * mostQueued}}); err != nil {
			return err
		}
	}
	return nil
}

// mostQueued is how many events a prompt is.
const mostQueued = 2

// asQueued adds the events of a prompt as they were queued at a seq.
func (p *pager) asQueued(ctx context.Context, seq uint64, at cursor) error {
	events, err := p.Sessions.Events(ctx, p.session, seq-1, 1)
	if err != nil || len(events) == 0 || !p.shows(&events[0]) || !p.within(&events[0]) {
		return err
	}
	queued, _ := queuedEvents(&events[0])
	kinds := []dormouse.EventType{dormouse.UserMessage, dormouse.SystemMessage}
	for i := range queued {
		if p.newest {
			i = len(queued) - 1 - i
		}
		if here := at.next(i); p.wants(kinds[i]) && p.follows(here) {
			p.add(queued[i], here)
		}
	}
	return nil
}

func (c cursor) next(parts int) cursor {
	c.part += parts
	return c
}

// offer adds an event if it is wanted and the page before did not have it.
func (p *pager) offer(e *dormouse.Event, at cursor) {
	if p.shows(e) && p.within(e) && p.wants(publicType(e.Type)) && p.follows(at) {
		p.add(p.appendEvent(nil, e), at)
	}
}

// follows reports whether a place is after that of the page before.
func (p *pager) follows(at cursor) bool {
	if !p.after.set || p.after.waited() != at.waited() {
		return true
	}
	order := at.compare(p.after.place)
	if p.newest {
		order = -order
	}
	return order > 0
}

// queue adds what waits, which is after all of the log.
func (p *pager) queue(ctx context.Context, state law.State) error {
	if p.newest && p.after.set && !p.after.waited() {
		return nil
	}
	waited, err := p.waited(ctx, state)
	if err != nil {
		return err
	}
	if p.newest {
		slices.Reverse(waited)
	}
	for _, w := range waited {
		if p.full() {
			return nil
		}
		at := cursor{place: place{seq: w.queued}, upto: p.upto}
		if w.taken == 0 {
			err = p.asQueued(ctx, w.queued, at)
		} else {
			err = p.asTaken(ctx, w.taken, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asTaken adds the events of a prompt as they were taken at a seq.
func (p *pager) asTaken(ctx context.Context, seq uint64, at cursor) error {
	events, err := p.Sessions.Events(ctx, p.session, seq-1, mostQueued)
	if len(events) == mostQueued && events[1].Type != dormouse.SystemMessage {
		events = events[:1]
	}
	for i := range events {
		if p.newest {
			i = len(events) - 1 - i
		}
		p.offer(&events[i], at.next(i))
	}
	return err
}

// waiter is a prompt that waits, or was taken meanwhile.
type waiter struct{ queued, taken uint64 }

// waited is the queue as it was when the log ended at p.upto.
func (p *pager) waited(ctx context.Context, state law.State) (out []waiter, err error) {
	for _, t := range state.Threads {
		for _, q := range t.Queue {
			if q.Seq <= p.upto {
				out = append(out, waiter{queued: q.Seq})
			}
		}
	}
	var failed error
	left := func(taken uint64, prompts ...dormouse.EventID) bool {
		for _, id := range prompts {
			record, err := p.Sessions.Prompt(ctx, p.session, id)
			if err != nil && !errors.Is(err, dormouse.ErrNotFound) {
				failed = err
				return false
			}
			if err == nil && record.Seq <= p.upto {
				out = append(out, waiter{record.Seq, taken})
			}
		}
		return true
	}
	err = p.forwards(ctx, p.session, p.upto, state.Seq, func(e *dormouse.Event) bool {
		switch e.Type { //nolint:exhaustive // nothing else takes from the queue
		case dormouse.UserMessage:
			return left(e.Seq, e.ID)
		case dormouse.PromptCancelled:
			var gone dormouse.Prompts
			_ = json.Unmarshal(e.Payload, &gone)
			return left(0, gone.Prompts...)
		}
		return true
	})
	slices.SortFunc(out, func(a, b waiter) int { return cmp.Compare(a.queued, b.queued) })
	return out, errors.Join(err, failed)
}
