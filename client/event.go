package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/dormouse-run/dormouse"
)

// Event is an event or a delta.
type Event struct {
	dormouse.Event
	// Delta is set if this is a delta, which has neither a type nor a seq.
	Delta *dormouse.Delta
	// Raw is the JSON as the server sent it.
	Raw json.RawMessage
}

// UnmarshalJSON reads an event and keeps its bytes.
func (e *Event) UnmarshalJSON(b []byte) error {
	e.Raw = bytes.Clone(b)
	return json.Unmarshal(b, &e.Event)
}

// MarshalJSON returns the JSON as the server sent it.
func (e Event) MarshalJSON() ([]byte, error) { return e.Raw, nil }

// EventOptions say which events are read.
type EventOptions struct {
	// After is the cursor: the seq of the last event already seen.
	After uint64
	// Limit is the largest number of events; 0 stands for all.
	Limit int
	// All includes the server's internal events.
	All bool
}

// Events yields the events that the log has now, and ends with the first error.
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
