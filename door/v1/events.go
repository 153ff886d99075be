package v1

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// Events on a page: as many as are asked for, fewer if they are large.
const (
	usualEvents = 1000
	mostEvents  = 1000
	enough      = 16 << 20
)

// listed is which events of a session a page is made of.
type listed struct {
	view
	list
	limit    int
	newest   bool
	types    []string
	from, to time.Time // within; zero is open
	after    cursor
}

// cursor is where the page before ended: in the log, and among those that wait, which
// come after all of it. Forwards, whoever goes on sees first what the log has got
// meanwhile, so that a prompt that was taken between two pages is not missed.
type cursor struct {
	seq    uint64 // in the log
	queued uint64 // of the last that waits; 0 if none was shown
	set    bool
}

func (c cursor) String() string { return fmt.Sprintf("%d.%d", c.seq, c.queued) }

func parseCursor(s string) (c cursor, ok bool) {
	if s == "" {
		return c, true
	}
	seq, queued, _ := strings.Cut(s, ".")
	var err, bad error
	c.seq, err = strconv.ParseUint(seq, 10, 64)
	c.queued, bad = strconv.ParseUint(queued, 10, 64)
	c.set = true
	return c, err == nil && bad == nil
}

// events lists the events of a session.
func (s *Server) events(c *call) error {
	ctx, cancel := c.ctx()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	q := c.query()
	l := listed{
		view: viewOf(row.Session), limit: q.limitOrZero(usualEvents, mostEvents), newest: q.word("order", "asc", "desc") == "desc",
		types: q.list("types", eventTypes...),
	}
	l.from, l.to = latest(q.time("created_at[gte]"), next(q.time("created_at[gt]"))), earliest(q.time("created_at[lte]"), before(q.time("created_at[lt]")))
	l.list = newList("events", string(row.Session), strconv.FormatBool(l.newest), strings.Join(l.types, ","), l.from.String(), l.to.String())
	return s.listEvents(ctx, c, row, q, l)
}

func (s *Server) listEvents(ctx context.Context, c *call, row session.Row, q *query, l listed) error {
	var ok bool
	if l.after, ok = parseCursor(l.list.after(q)); !ok {
		q.wrongf("page: is no cursor of this list")
	}
	if q.err != nil {
		return q.err
	}
	found, err := s.collect(ctx, row, l)
	if err != nil {
		return err
	}
	page := pageOf(l.list, found.cut(), found.events, func(e shownEvent) string { return e.at.String() })
	events := make([]json.RawMessage, len(page.Data))
	for i, e := range page.Data {
		events[i] = e.raw
	}
	c.send(http.StatusOK, spelled(events, append([]byte(`,"next_page":`), dormouse.Encode(page.Next)...)))
	return nil
}

// shownEvent is an event of a page.
type shownEvent struct {
	raw json.RawMessage
	at  cursor
}

// collected is what was found for a page, and how many of it are one.
type collected struct {
	events []shownEvent
	size   int
	limit  int
}

// cut is how many are on the page: no more than was asked for or than is enough, but
// a message and the system message that belongs to it are not torn apart.
func (c *collected) cut() int {
	n := min(c.limit, len(c.events))
	for n > 0 && n < len(c.events) && c.events[n-1].at == c.events[n].at {
		n++
	}
	return n
}

// full reports whether there is one more than fits on the page.
func (c *collected) full() bool {
	if c.size >= enough && c.limit > len(c.events) {
		c.limit = max(len(c.events), 1)
	}
	return len(c.events) > c.cut()
}

func (c *collected) add(raw []byte, at cursor) {
	c.events = append(c.events, shownEvent{raw, at})
	c.size += len(raw)
}

// collect gathers a page: the log in its order and then what waits, or all of that
// backwards.
func (s *Server) collect(ctx context.Context, row session.Row, l listed) (*collected, error) {
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return nil, err
	}
	waiting := make(map[uint64]bool)
	for _, t := range state.Threads {
		for _, p := range t.Queue {
			waiting[p.Seq] = true
		}
	}
	cancelled, err := s.cancelled(ctx, row.Session)
	if err != nil {
		return nil, err
	}
	p := &pager{
		Server: s, listed: l, session: row.Session, upto: state.Seq, waiting: waiting, cancelled: cancelled,
		collected: &collected{limit: l.limit},
	}
	steps := []func(context.Context) error{p.log, p.queue}
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

// cancelled is the prompts that were taken out of the queue.
func (s *Server) cancelled(ctx context.Context, id dormouse.SessionID) (map[dormouse.EventID]bool, error) {
	prompts, err := s.Sessions.Prompts(ctx, id, dormouse.PromptIsCancelled)
	if err != nil {
		return nil, err
	}
	out := make(map[dormouse.EventID]bool, len(prompts))
	for _, p := range prompts {
		out[p.ID] = true
	}
	return out, nil
}

// pager reads one page.
type pager struct {
	*Server
	listed
	*collected
	session dormouse.SessionID
	upto    uint64
	// waiting is by the seq of prompt.queued, cancelled by the id of the prompt.
	waiting   map[uint64]bool
	cancelled map[dormouse.EventID]bool
}

// log adds what is in the log. A prompt that was cancelled is shown where it was
// queued: it was never processed.
func (p *pager) log(ctx context.Context) error {
	add := func(e *dormouse.Event) bool {
		if !p.shows(e) || !p.within(e) {
			return true
		}
		at := cursor{seq: e.Seq}
		if !p.newest {
			at.queued = p.after.queued
		}
		if e.Type != dormouse.PromptQueued {
			if p.wants(e.Type) {
				p.add(p.append(nil, e), at)
			}
			return !p.full()
		}
		if p.cancelled[e.ID] {
			p.addQueued(e, at)
		}
		return !p.full()
	}
	if !p.newest {
		return p.forwards(ctx, p.session, p.after.seq, p.upto, add)
	}
	if p.full() {
		return nil
	}
	from := p.upto
	if p.after.set {
		from = p.after.seq - min(p.after.seq, 1)
	}
	return p.backwards(ctx, p.session, from, add)
}

// queue adds what waits, which is after all of the log.
func (p *pager) queue(ctx context.Context) error {
	end := p.upto // of the log, where a page after this one goes on
	if p.newest {
		end++
		if p.after.set && p.after.queued == 0 {
			return nil // it is at the log already
		}
		if p.after.set {
			end = p.after.seq
		}
	}
	seqs := slices.Sorted(func(yield func(uint64) bool) {
		for seq := range p.waiting {
			if !yield(seq) {
				return
			}
		}
	})
	if p.newest {
		slices.Reverse(seqs)
	}
	for _, seq := range seqs {
		if p.full() {
			return nil
		}
		if q := p.after.queued; q > 0 && (p.newest && seq >= q || !p.newest && seq <= q) {
			continue
		}
		events, err := p.Sessions.Events(ctx, p.session, seq-1, 1)
		if err != nil {
			return err
		}
		for i := range events {
			if e := &events[i]; p.shows(e) && p.within(e) {
				p.addQueued(e, cursor{seq: end, queued: seq})
			}
		}
	}
	return nil
}

func (p *pager) addQueued(e *dormouse.Event, at cursor) {
	queued, _ := queuedEvents(e)
	types := []dormouse.EventType{dormouse.UserMessage, dormouse.SystemMessage}
	if p.newest {
		slices.Reverse(queued)
		types = types[:len(queued)]
		slices.Reverse(types)
	}
	for i, raw := range queued {
		if p.wants(types[i]) {
			p.add(raw, at)
		}
	}
}

func (l *listed) wants(t dormouse.EventType) bool {
	return len(l.types) == 0 || slices.Contains(l.types, string(t))
}

func (l *listed) within(e *dormouse.Event) bool {
	return (l.from.IsZero() || !e.Time.Before(l.from)) && (l.to.IsZero() || !e.Time.After(l.to))
}

const atOnce = 200 // events read together

// forwards reads a log from after a seq on, as long as f wants more.
func (s *Server) forwards(ctx context.Context, id dormouse.SessionID, after, upto uint64, f func(*dormouse.Event) bool) error {
	for after < upto {
		events, err := s.Sessions.Events(ctx, id, after, atOnce)
		if err != nil || len(events) == 0 {
			return err
		}
		for i := range events {
			if after = events[i].Seq; after > upto || !f(&events[i]) {
				return nil
			}
		}
	}
	return nil
}

// backwards reads a log from a seq back to its beginning, as long as f wants more.
func (s *Server) backwards(ctx context.Context, id dormouse.SessionID, from uint64, f func(*dormouse.Event) bool) error {
	for from > 0 {
		var events []dormouse.Event
		start := from - min(from, atOnce)
		err := s.forwards(ctx, id, start, from, func(e *dormouse.Event) bool {
			events = append(events, *e)
			return true
		})
		if err != nil {
			return err
		}
		for i := range slices.Backward(events) {
			if !f(&events[i]) {
				return nil
			}
		}
		from = start
	}
	return nil
}

// The moments next to an open bound, in the steps that a log counts in.
func next(t time.Time) time.Time   { return step(t, time.Microsecond) }
func before(t time.Time) time.Time { return step(t, -time.Microsecond) }

func step(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

func latest(a, b time.Time) time.Time {
	if a.IsZero() || b.After(a) {
		return b
	}
	return a
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
