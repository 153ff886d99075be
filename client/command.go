package client

import (
	"context"

	"github.com/dormouse-run/dormouse"
)

// onThread names a thread, the primary one if it is empty.
type onThread struct {
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// InterruptOptions say what of a turn is stopped.
type InterruptOptions struct {
	// FlushQueue also cancels the prompts that are queued behind it.
	FlushQueue bool `json:"flush_queue"`
	// Thread is whose turn it is; the primary one's if it is empty.
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// Interrupt stops the active turn.
func (c *Client) Interrupt(ctx context.Context, id dormouse.SessionID, o InterruptOptions) (Row, error) {
	return post[Row](ctx, c, id, "interrupt", o)
}

// Retry takes up again a turn that a crash left waiting, or the prompts of one that
// failed. An empty thread is the primary one.
func (c *Client) Retry(ctx context.Context, id dormouse.SessionID, thread dormouse.ThreadID) (Row, error) {
	return post[Row](ctx, c, id, "retry", onThread{thread})
}

// Continue closes a turn that a crash left waiting and goes on with what is queued. An
// empty thread is the primary one.
func (c *Client) Continue(ctx context.Context, id dormouse.SessionID, thread dormouse.ThreadID) (Row, error) {
	return post[Row](ctx, c, id, "continue", onThread{thread})
}

// Hibernate hibernates the sandbox.
func (c *Client) Hibernate(ctx context.Context, id dormouse.SessionID) (Row, error) {
	return post[Row](ctx, c, id, "hibernate", struct{}{})
}

// Wake starts the sandbox of a hibernated session without asking anything of it.
func (c *Client) Wake(ctx context.Context, id dormouse.SessionID) (Row, error) {
	return post[Row](ctx, c, id, "wake", struct{}{})
}

// Archive ends a session that is not running and leaves it out of lists. It is idempotent.
func (c *Client) Archive(ctx context.Context, id dormouse.SessionID) (Row, error) {
	return post[Row](ctx, c, id, "archive", struct{}{})
}

// Terminate ends a session for good, and its children with it. It is idempotent.
func (c *Client) Terminate(ctx context.Context, id dormouse.SessionID, reason string) (Row, error) {
	return post[Row](ctx, c, id, "terminate", struct {
		Reason string `json:"reason,omitempty"`
	}{reason})
}
