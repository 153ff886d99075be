package client

import (
	"context"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Wakeup is a prompt that a session will give itself.
type Wakeup struct {
	ID     dormouse.WakeupID `json:"id"`
	Thread dormouse.ThreadID `json:"thread"`
	// At is when it fires next.
	At   time.Time `json:"at"`
	Cron string    `json:"cron,omitempty"`
	// Text is the beginning of what it says; only lists have it.
	Text string `json:"text,omitempty"`
}

// Wakeups lists what is scheduled.
func (c *Client) Wakeups(ctx context.Context, id dormouse.SessionID) ([]Wakeup, error) {
	a, err := get[struct {
		Wakeups []Wakeup `json:"wakeups"`
	}](ctx, c, of(id, "wakeups"), nil)
	return a.Wakeups, err
}

// WakeupOptions are a prompt and when a session gives it to itself: one of At, In and
// Cron.
type WakeupOptions struct {
	Prompt []dormouse.Block `json:"prompt"`
	// At is a time such as 2030-01-02T15:04:05Z, In a duration such as 10m, Cron five
	// fields in UTC.
	At   string `json:"at,omitempty"`
	In   string `json:"in,omitempty"`
	Cron string `json:"cron,omitempty"`
	// ID is the client's own and makes the request idempotent.
	ID     string            `json:"id,omitempty"`
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// Schedule has a session prompt itself later.
func (c *Client) Schedule(ctx context.Context, id dormouse.SessionID, o WakeupOptions) (Wakeup, error) {
	return post[Wakeup](ctx, c, id, "wakeups", o)
}

// CancelWakeup cancels a wake-up, which then does not count towards the limit any more.
func (c *Client) CancelWakeup(ctx context.Context, id dormouse.SessionID, wakeup dormouse.WakeupID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "wakeups", string(wakeup)), nil, &row)
}
