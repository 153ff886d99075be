package v1

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/feed"
)

// streamer follows sessions.
type streamer interface {
	Follow(ctx context.Context, id dormouse.SessionID, after uint64) (*feed.Follower, error)
}

var (
	errHeartbeat = errors.New("heartbeat is due")
	errOver      = errors.New("nothing more will come")
)

// stream follows a session from now on, or from the event a client saw last.
func (s *Server) stream(c call) error { return s.follow(c, "") }

// maxDeltas bounds the values of event_deltas[].
const maxDeltas = 100

func (s *Server) follow(c call, thread dormouse.ThreadID) error {
	q := c.query()
	deltas := q.list("event_deltas", string(dormouse.AgentMessage), string(dormouse.AgentThinking))
	if len(deltas) > maxDeltas {
		q.wrongf("event_deltas[]: at most %d are taken", maxDeltas)
	}
	if q.err != nil {
		return q.err
	}
	ctx := c.R.Context() // without an end: a stream lasts as long as its client
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	v := viewOf(row.Session)
	if v.thread = thread; thread != "" {
		if _, _, err := s.threadOf(ctx, c, row); err != nil {
			return err
		}
	}
	after := row.Seq
	if last := c.R.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseUint(last, 10, 64)
		if err != nil || n > row.Seq {
			return invalidf("Last-Event-ID: %q is not the id of an event of this session", shorten(last))
		}
		after = n
	}
	if after < row.Seq { // events that are still to come announce what they void
		state, err := s.Sessions.Peek(ctx, row.Session)
		if err != nil {
			return err
		}
		v.voided = voidedIn(state)
	}
	f, err := s.Sessions.Follow(ctx, row.Session, after)
	if err != nil {
		return err
	}
	defer f.Close()
	s.followers.Add(1)
	defer s.followers.Add(-1)
	c.Status, c.Stream = http.StatusOK, true
	out := &events{Stream: door.NewStream(c.W, s.WriteTimeout), view: v}
	if slices.Contains(deltas, string(dormouse.AgentMessage)) {
		out.previews = newPreviews(v)
	}
	out.BeginEvents()
	out.Send(": following\n\n")
	if row.Status == dormouse.StatusTerminated {
		if out.last = row.Seq; after >= row.Seq {
			return nil
		}
	}
	return s.pump(ctx, c, row.Session, f, out)
}

// pump copies from the follower to the client until something ends it.
func (s *Server) pump(ctx context.Context, c call, id dormouse.SessionID, f *feed.Follower, out *events) error {
	defer func() { f.Close() }()
	for out.Err == nil && ctx.Err() == nil {
		beat, stop := context.WithTimeoutCause(ctx, s.KeepAlive, errHeartbeat)
		err := out.pump(beat, f)
		silent := beat.Err() != nil
		stop()
		switch {
		case out.Err != nil || ctx.Err() != nil:
		case errors.Is(err, errOver) || errors.Is(err, dormouse.ErrClosing):
			return nil // clients come back by themselves, and list what they missed
		case silent:
			// A follower that missed the deletion cannot read it from the log.
			if _, err := s.row(ctx, c); errors.Is(err, dormouse.ErrNotFound) {
				return nil
			}
			out.Send(": alive\n\n")
		case errors.Is(err, dormouse.ErrBehind):
			// Clients of this API do not reconnect by themselves. What they missed is in
			// the log. A client that does not read at all is cut off for that.
			again, err := s.Sessions.Follow(ctx, id, f.Cursor())
			if err != nil {
				return s.endStream(c, out, err)
			}
			f.Close()
			f = again
		default:
			return s.endStream(c, out, err)
		}
	}
	return nil
}

// endStream sends why a stream ends.
func (s *Server) endStream(c call, out *events, err error) error {
	out.Send("event: error\ndata: " + string(dormouse.Encode(replyTo(err).body(c.ID))) + "\n\n")
	return nil
}

// events writes events as server-sent ones: a batch at a time, so that a busy
// session costs its followers few system calls.
type events struct {
	*door.Stream
	view     view
	previews *previews // nil if none were asked for
	last     uint64    // the event after which nothing comes; 0 if that is not known
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, door.BufferSize+door.BufferSize/4)
	return &b
}}

func (s *events) pump(ctx context.Context, f *feed.Follower) error {
	for {
		items, err := f.Next(ctx)
		if err != nil {
			return err
		}
		over := s.write(items)
		if s.Err != nil {
			return s.Err
		}
		if over {
			return errOver
		}
	}
}

// write sends what is for this stream and reports whether nothing more will come.
func (s *events) write(items []*feed.Item) (over bool) {
	buffer, _ := buffers.Get().(*[]byte)
	b := (*buffer)[:0]
	wrote := false
	for _, i := range items {
		was := len(b)
		b = s.item(b, i)
		wrote = wrote || len(b) > was
		if len(b) >= door.BufferSize {
			s.Put(b)
			b = b[:0]
		}
		over = over || ends(i.Event.Type) || s.last > 0 && i.Event.Seq >= s.last // a deletion comes right after the end
		if s.Err != nil {
			break
		}
	}
	s.Put(b)
	if wrote {
		s.Flush()
	}
	if cap(b) <= 4*door.BufferSize { // one that grew for a large event is not kept
		*buffer = b[:0]
		buffers.Put(buffer)
	}
	return over
}

// ends reports whether nothing comes after an event but what was committed with it.
func ends(t dormouse.EventType) bool {
	return t == dormouse.SessionDeleted || t == dormouse.SessionStatusTerminated
}

const messageFrame = "event: message\ndata: "

// item encodes one item. The id of a server-sent event is the cursor to resume from: a
// client that has seen the last one of an event has seen the event.
func (s *events) item(b []byte, i *feed.Item) []byte {
	if i.Delta != nil {
		if s.previews != nil {
			b = s.previews.delta(b, i.Delta)
		}
		return b
	}
	e := &i.Event
	if s.previews != nil {
		s.previews.see(e)
	}
	if !s.view.shows(e) {
		return b
	}
	if e.Type == dormouse.PromptQueued {
		queued, _ := queuedEvents(e)
		for n, raw := range queued {
			if n == len(queued)-1 {
				b = appendID(b, e.Seq)
			}
			b = append(append(append(b, messageFrame...), raw...), "\n\n"...)
		}
		return b
	}
	b = append(appendID(b, e.Seq), messageFrame...)
	return append(s.view.appendEvent(b, e), "\n\n"...)
}

func appendID(b []byte, seq uint64) []byte {
	b = append(b, "id: "...)
	return append(strconv.AppendUint(b, seq, 10), '\n')
}
