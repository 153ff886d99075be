package client

import (
	"context"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Wakeup is a prompt that a session gets at a later time.
type Wakeup struct {
	ID     dormouse.WakeupID `json:"id"`
	Thread dormouse.ThreadID `json:"thread"`
	// At is when it fires next.
	At   time.Time `json:"at"`
	Cron string    `json:"cron,omitempty"`
	// Text is the beginning of the prompt; only lists have it.
	Text string `json:"text,omitempty"`
}

// Wakeups lists the scheduled wake-ups of a session.
func (c *Client) Wakeups(ctx context.Context, id dormouse.SessionID) ([]Wakeup, error) {
	a, err := get[struct {
		Wakeups []Wakeup `json:"wakeups"`
	}](ctx, c, of(id, "wakeups"), nil)
	return a.Wakeups, err
}

// WakeupOptions describe a wake-up: a prompt, and when it is due as one of At, In and Cron.
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

// Schedule schedules a wake-up.
func (c *Client) Schedule(ctx context.Context, id dormouse.SessionID, o WakeupOptions) (Wakeup, error) {
	return post[Wakeup](ctx, c, id, "wakeups", o)
}

// CancelWakeup cancels a wake-up. It no longer counts towards the limit.
func (c *Client) CancelWakeup(ctx context.Context, id dormouse.SessionID, wakeup dormouse.WakeupID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "wakeups", string(wakeup)), nil, &row)
}
