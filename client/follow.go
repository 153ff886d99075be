package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/internal/sse"
)

// FollowOptions say what a follower sees.
type FollowOptions struct {
	// After is the cursor: the last event already seen.
	After uint64
	// Deltas includes text and output as it is made, All the server's own bookkeeping.
	Deltas bool
	All    bool
	// Silence is how long a server may say nothing before the connection counts as
	// broken; 0 stands for a minute. A server that has nothing to say says so every 15 s.
	Silence time.Duration
	// Once follows over one connection only, and ends with the error that broke it.
	Once bool
}

// How long a follower waits before it connects again.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 3 * time.Second
)

// Follow yields every event after a cursor, and then new ones as they come, each once and in
// order. When the connection breaks it reconnects with backoff, from the last event that was
// seen. The Seq of the last event is the cursor to go on with later.
//
// It ends when ctx does, with its cause, and when the server refuses, or says what cannot
// be understood: a session that was deleted, for example, is not found any more. That is
// the last pair, and the only one with an error.
func (c *Client) Follow(ctx context.Context, id dormouse.SessionID, o FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for wait := firstWait; ; {
			before := o.After
			seen, err := c.follow(ctx, id, &o, yield)
			if seen {
				return
			}
			if o.Once || final(err) {
				yield(Event{}, err)
				return
			}
			if o.After != before {
				wait = firstWait
			}
			if err := sleep.For(ctx, wait); err != nil {
				yield(Event{}, err)
				return
			}
			wait = min(2*wait, longestWait)
		}
	}
}

// final reports whether connecting again would not help.
func final(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status < http.StatusInternalServerError || errors.Is(err, ErrGarbled) || errors.Is(err, sse.ErrTooLong)
}

// follow yields the events of one connection that were not seen before. It reports whether
// the caller has stopped the iteration.
func (c *Client) follow(ctx context.Context, id dormouse.SessionID, o *FollowOptions, yield func(Event, error) bool) (enough bool, err error) {
	s, err := c.OpenStream(ctx, id, *o)
	if err != nil {
		return false, err
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			return false, err
		}
		if e.Delta == nil {
			if e.Seq <= o.After {
				continue
			}
			o.After = e.Seq
		}
		if !yield(e, nil) {
			return true, nil
		}
	}
}

// Stream is one connection over which a session is followed. It gives what comes as it
// comes; Follow is for whoever wants each event once, whatever happens.
type Stream struct {
	cause  func() error // why it was given up, if it was
	in     *sse.Reader
	body   io.Closer
	cancel context.CancelCauseFunc
	alive  *time.Timer
}

// maxEvent bounds what one event can be.
const maxEvent = 64 << 20

var (
	errSilent = errors.New("the server fell silent")
	// ErrGarbled means that a stream cannot be decoded, or that a frame contradicts the
	// event in it.
	ErrGarbled = errors.New("understand event")
)

// OpenStream begins to follow over one connection.
func (c *Client) OpenStream(ctx context.Context, id dormouse.SessionID, o FollowOptions) (*Stream, error) {
	silence := o.Silence
	if silence == 0 {
		silence = time.Minute
	}
	cursor := strconv.FormatUint(o.After, 10)
	q := query("follow", "true", "after", cursor, "deltas", flag(o.Deltas), "all", flag(o.All))
	ctx, cancel := context.WithCancelCause(ctx)
	alive := time.AfterFunc(silence, func() { cancel(errSilent) })
	res, err := c.do(ctx, http.MethodGet, of(id, "events")+"?"+q.Encode(), nil, http.Header{ //nolint:bodyclose // the stream closes it
		"Accept": {"text/event-stream"}, "Last-Event-Id": {cursor},
	})
	if err != nil {
		alive.Stop()
		cancel(nil)
		return nil, err
	}
	return &Stream{
		cause: func() error { return context.Cause(ctx) }, body: res.Body, cancel: cancel, alive: alive,
		in: sse.NewReader(&heard{res.Body, func() { alive.Reset(silence) }}, maxEvent),
	}, nil
}

// heard reads, and notes that something was read.
type heard struct {
	from io.Reader
	say  func()
}

func (h *heard) Read(b []byte) (int, error) {
	n, err := h.from.Read(b)
	h.say()
	return n, err
}

// Next waits for the next event or delta.
func (s *Stream) Next() (Event, error) {
	for {
		f, err := s.in.Next()
		if err != nil {
			if why := s.cause(); why != nil {
				err = why
			}
			return Event{}, fmt.Errorf("follow: %w", err)
		}
		switch f.Event {
		case "": // the server lives
		case "delta":
			e := Event{Delta: new(dormouse.Delta), Raw: f.Data}
			if err := json.Unmarshal(f.Data, e.Delta); err != nil {
				return Event{}, fmt.Errorf("%w: a delta: %w", ErrGarbled, err)
			}
			return e, nil
		case "behind", "closing", "error":
			return Event{}, ended(f)
		default:
			return eventOf(f)
		}
	}
}

// ended is why a server ended a stream.
func ended(f sse.Frame) error {
	var why struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(f.Data, &why) // what it does not say is not told
	switch f.Event {
	case "behind":
		return fmt.Errorf("the server ended the stream: %w", dormouse.ErrBehind)
	case "closing":
		return fmt.Errorf("the server ended the stream: %w", dormouse.ErrClosing)
	}
	return fmt.Errorf("the server ended the stream: %s", why.Message)
}

// eventOf reads an event. What its frame says of it must be what it says itself.
func eventOf(f sse.Frame) (e Event, err error) {
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrGarbled, err)
	}
	if f.ID != strconv.FormatUint(e.Seq, 10) || f.Event != string(e.Type) || e.Seq == 0 {
		return Event{}, fmt.Errorf("%w: event %d %s came as id %s, event %s", ErrGarbled, e.Seq, e.Type, f.ID, f.Event)
	}
	return e, nil
}

// Close ends the connection.
func (s *Stream) Close() {
	s.alive.Stop()
	s.cancel(nil)
	_ = s.body.Close()
}
