package v1

import (
	"cmp"
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

// eventReader reads pages of the log.
type eventReader interface {
	Events(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error)
}

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

// cursor is the last event of the page before. A queued one has the place where it was
// queued, and comes after all of the log as it was then.
type cursor struct {
	place
	upto uint64 // how far the log went, if it waited
	set  bool
}

// place is where an event stands: at a seq of the log, and as which of those that
// are shown there.
type place struct {
	seq  uint64
	part int
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.seq, q.seq), cmp.Compare(p.part, q.part))
}

func (c cursor) waited() bool { return c.upto > 0 }

func (c cursor) String() string { return fmt.Sprintf("%d.%d.%d", c.seq, c.part, c.upto) }

func parseCursor(s string) (c cursor, ok bool) {
	if s == "" {
		return c, true
	}
	c.set = true
	n, err := fmt.Sscanf(s, "%d.%d.%d", &c.seq, &c.part, &c.upto)
	return c, n == 3 && err == nil && c.String() == s
}

// events lists the events of a session.
func (s *Server) events(c call) error {
	ctx, cancel := c.Context()
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

func (s *Server) listEvents(ctx context.Context, c call, row session.Row, q *query, l listed) error {
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
	page := pageOf(l.list, found.limit, found.events, func(e pageEvent) string { return e.at.String() })
	events := make([]json.RawMessage, len(page.Data))
	for i, e := range page.Data {
		events[i] = e.raw
	}
	c.Send(http.StatusOK, encodeList(events, append([]byte(`,"next_page":`), dormouse.Encode(page.Next)...)))
	return nil
}

// pageEvent is an event of a page.
type pageEvent struct {
	raw json.RawMessage
	at  cursor
}

// collected is what was found for a page, and how many of it are one.
type collected struct {
	events []pageEvent
	size   int
	limit  int
}

// full reports whether there is one more than fits on the page.
func (c *collected) full() bool {
	if c.size >= enough && c.limit > len(c.events) {
		c.limit = max(len(c.events), 1)
	}
	return len(c.events) > c.limit
}

func (c *collected) add(raw []byte, at cursor) {
	c.events = append(c.events, pageEvent{raw, at})
	c.size += len(raw)
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
