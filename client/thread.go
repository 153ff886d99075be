package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Thread is the state of a thread: its active turn and the length of its queue.
type Thread struct {
	ID    dormouse.ThreadID `json:"id"`
	Queue int               `json:"queue"`
	Turn  *Turn             `json:"turn,omitempty"`
}

// Turn is the work in progress.
type Turn struct {
	ID      dormouse.TurnID `json:"id"`
	Attempt int             `json:"attempt"`
	// Blocked says whether it waits for people or for a decision after a crash (recovery).
	Blocked string `json:"blocked,omitempty"`
	// Until is when the next attempt may start.
	Until time.Time `json:"until,omitzero"`
	// Waiting are the tool calls that wait for an answer.
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

// OpenThread adds a thread. It is idempotent by name; an empty name always adds a new one.
func (c *Client) OpenThread(ctx context.Context, id dormouse.SessionID, name string) (Thread, error) {
	return post[Thread](ctx, c, id, "threads", struct {
		ID string `json:"id,omitempty"`
	}{name})
}
