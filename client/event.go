package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/dormouse-run/dormouse"
)

// Event is an event, or a fragment on its way to becoming one.
type Event struct {
	dormouse.Event
	// Delta is set on fragments, which have neither a type nor a seq.
	Delta *dormouse.Delta
	// Raw is its bytes as the server sent them.
	Raw json.RawMessage
}

// UnmarshalJSON reads an event and keeps its bytes.
func (e *Event) UnmarshalJSON(b []byte) error {
	e.Raw = bytes.Clone(b)
	return json.Unmarshal(b, &e.Event)
}

// MarshalJSON returns the bytes that the event came as.
func (e Event) MarshalJSON() ([]byte, error) { return e.Raw, nil }

// EventOptions say which events of a session's history are read.
type EventOptions struct {
	// After is the cursor: the last event already seen.
	After uint64
	// Limit is how many; 0 stands for all there are.
	Limit int
	// All includes the server's own bookkeeping.
	All bool
}

// Events reads a session's history as far as it goes now. It ends with the first error.
func (c *Client) Events(ctx context.Context, id dormouse.SessionID, o EventOptions) iter.Seq2[Event, error] {
	const most = 1000
	return func(yield func(Event, error) bool) {
		for left := o.Limit; ; {
			n := most
			if o.Limit > 0 {
				n = min(left, most)
			}
			page, err := get[struct {
				Events []Event `json:"events"`
				Next   uint64  `json:"next"`
				More   bool    `json:"more"`
			}](ctx, c, of(id, "events"), query("after", strconv.FormatUint(o.After, 10), "limit", strconv.Itoa(n), "all", flag(o.All)))
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			left -= len(page.Events)
			if !page.More || o.Limit > 0 && left <= 0 {
				return
			}
			o.After = page.Next
		}
	}
}
