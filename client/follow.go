package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/internal/sse"
)

// FollowOptions say what a follower sees.
type FollowOptions struct {
	// After is the cursor: the seq of the last event already seen.
	After uint64
	// Deltas includes fragments of text and output while they are produced.
	Deltas bool
	// All includes the server's internal events.
	All bool
	// Silence is how long Next waits without receiving a byte before the connection counts
	// as broken; 0 stands for a minute. Time between calls of Next does not count. A
	// server sends a heartbeat every 15 s.
	Silence time.Duration
	// Once makes Follow use a single connection, and end with the error that broke it.
	Once bool
}

// How long a follower waits before it reconnects.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 3 * time.Second
	// longestRetryAfter bounds what a server can ask for, so that a wrong Retry-After
	// does not stop a follower for a day.
	longestRetryAfter = 5 * time.Minute
)

// Follow yields every event after a cursor, and then new ones as they are committed, each
// once and in order. The Seq of the last event is the cursor to continue from later.
//
// When the connection breaks, or the server cannot serve it now (408, 425, 429 and 5xx
// except 501), Follow reconnects from the last event that was seen. It waits with
// backoff, or longer if the server sends Retry-After, but at most five minutes.
//
// It ends when ctx does, with the cause of ctx, and with an error that reconnecting would
// not mend: any other status, a session that does not exist (any more) or whose log is
// damaged, and a response that is not a stream of events (ErrGarbled). The error is the
// last pair that is yielded, and the only one with an error.
func (c *Client) Follow(ctx context.Context, id dormouse.SessionID, o FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for wait := firstWait; ; {
			before := o.After
			stopped, err := c.follow(ctx, id, &o, yield)
			if stopped {
				return
			}
			if o.Once || final(err) {
				yield(Event{}, err)
				return
			}
			if o.After != before {
				wait = firstWait
			}
			if err := sleep.For(ctx, max(wait, retryAfter(err))); err != nil {
				yield(Event{}, err)
				return
			}
			wait = min(2*wait, longestWait)
		}
	}
}

// final reports whether reconnecting would not help.
func final(err error) bool {
	if errors.Is(err, ErrGarbled) || errors.Is(err, sse.ErrTooLong) {
		return true
	}
	if ended, ok := errors.AsType[*StreamError](err); ok {
		return finalCode(ended.Code)
	}
	refused, ok := errors.AsType[*Error](err)
	return ok && (finalCode(refused.Code) || !passing(refused.Status))
}

// finalCode reports whether an error with this code stays, whatever the status is.
func finalCode(code string) bool {
	return code == "damaged" || code == "not_found" || code == "invalid"
}

// passing reports whether the same request may succeed later although it was answered with
// this status now.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return status >= http.StatusInternalServerError
}

// retryAfter returns how long the server asked to wait, as far as a follower obeys.
func retryAfter(err error) time.Duration {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return 0
	}
	return min(refused.RetryAfter, longestRetryAfter)
}

// follow yields the events of one connection that were not seen before. It reports whether
// the caller stopped the iteration.
func (c *Client) follow(ctx context.Context, id dormouse.SessionID, o *FollowOptions, yield func(Event, error) bool) (stopped bool, err error) {
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
