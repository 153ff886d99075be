package client

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// SendOptions are a prompt.
type SendOptions struct {
	Content []dormouse.Block `json:"content"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
	// Thread is whom it is for; the primary one if it is empty.
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// Prompt is an accepted prompt.
type Prompt struct {
	ID     dormouse.EventID      `json:"id"`
	Status dormouse.PromptStatus `json:"status"`
	// Seq is the event that made it durable.
	Seq uint64 `json:"seq,omitempty"`
}

// Send queues a prompt. Once it has returned the prompt is durable, and is worked on even if
// the server crashes.
func (c *Client) Send(ctx context.Context, id dormouse.SessionID, o SendOptions) (Prompt, error) {
	return post[Prompt](ctx, c, id, "prompts", o)
}

// Queued is a prompt that waits, with the beginning of what it says.
type Queued struct {
	dormouse.PromptRecord
	Text string `json:"text,omitempty"`
}

// Queue lists the prompts that wait and those being worked on, oldest first.
func (c *Client) Queue(ctx context.Context, id dormouse.SessionID) ([]Queued, error) {
	a, err := get[struct {
		Prompts []Queued `json:"prompts"`
	}](ctx, c, of(id, "queue"), nil)
	return a.Prompts, err
}

// CancelPrompt takes a prompt out of the queue before its turn.
func (c *Client) CancelPrompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "queue", string(prompt)), nil, &row)
}
