package client

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// SendOptions describe a prompt.
type SendOptions struct {
	Content []dormouse.Block `json:"content"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
	// Thread is the thread that gets the prompt; empty is the primary one.
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// Prompt is an accepted prompt.
type Prompt struct {
	ID     dormouse.EventID      `json:"id"`
	Status dormouse.PromptStatus `json:"status"`
	// Seq is the seq of the event that recorded it.
	Seq uint64 `json:"seq,omitempty"`
}

// Send queues a prompt. When it returns without an error the prompt is durable, and is worked
// on even if the server crashes.
func (c *Client) Send(ctx context.Context, id dormouse.SessionID, o SendOptions) (Prompt, error) {
	return post[Prompt](ctx, c, id, "prompts", o)
}

// Queued is a prompt in the queue, with the beginning of its text.
type Queued struct {
	dormouse.PromptRecord
	Text string `json:"text,omitempty"`
}

// Queue lists the prompts that are queued or being processed, oldest first.
func (c *Client) Queue(ctx context.Context, id dormouse.SessionID) ([]Queued, error) {
	a, err := get[struct {
		Prompts []Queued `json:"prompts"`
	}](ctx, c, of(id, "queue"), nil)
	return a.Prompts, err
}

// CancelPrompt removes a prompt from the queue before its turn has started.
func (c *Client) CancelPrompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "queue", string(prompt)), nil, &row)
}
