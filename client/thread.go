package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Thread is what one thread works on and what waits for it.
type Thread struct {
	ID    dormouse.ThreadID `json:"id"`
	Queue int               `json:"queue"`
	Turn  *Turn             `json:"turn,omitempty"`
}

// Turn is the work in progress.
type Turn struct {
	ID      dormouse.TurnID `json:"id"`
	Attempt int             `json:"attempt"`
	// Blocked says what it waits for: people or recovery.
	Blocked string `json:"blocked,omitempty"`
	// Until is when the next attempt may start.
	Until time.Time `json:"until,omitzero"`
	// Waiting are the tool calls that only people can answer.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Waiting is a tool call of a turn that waits for an answer.
type Waiting struct {
	ID    dormouse.EventID `json:"id"`
	Gate  dormouse.Gate    `json:"gate"`
	Name  string           `json:"name,omitempty"`
	Input json.RawMessage  `json:"input,omitempty"`
}

// Threads lists a session's threads, the primary one first.
func (c *Client) Threads(ctx context.Context, id dormouse.SessionID) ([]Thread, error) {
	a, err := get[struct {
		Threads []Thread `json:"threads"`
	}](ctx, c, of(id, "threads"), nil)
	return a.Threads, err
}

// OpenThread adds a thread. It is idempotent by name; without one the thread is new.
func (c *Client) OpenThread(ctx context.Context, id dormouse.SessionID, name string) (Thread, error) {
	return post[Thread](ctx, c, id, "threads", struct {
		ID string `json:"id,omitempty"`
	}{name})
}
