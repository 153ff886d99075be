package client

import (
	"context"

	"github.com/dormouse-run/dormouse"
)

// onThread is a request about a thread; empty is the primary one.
type onThread struct {
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// InterruptOptions say what is interrupted.
type InterruptOptions struct {
	// FlushQueue also cancels the prompts that are queued behind it.
	FlushQueue bool `json:"flush_queue"`
	// Thread is the thread whose turn is interrupted; empty is the primary one.
	Thread dormouse.ThreadID `json:"thread,omitempty"`
}

// Interrupt stops the active turn.
func (c *Client) Interrupt(ctx context.Context, id dormouse.SessionID, o InterruptOptions) (Row, error) {
	return post[Row](ctx, c, id, "interrupt", o)
}

// Retry resumes a turn that waits for a decision after a crash, or tries the prompts of a
// failed turn again. An empty thread is the primary one.
func (c *Client) Retry(ctx context.Context, id dormouse.SessionID, thread dormouse.ThreadID) (Row, error) {
	return post[Row](ctx, c, id, "retry", onThread{thread})
}

// Continue ends a turn that waits for a decision after a crash, and goes on with the queue.
// An empty thread is the primary one.
func (c *Client) Continue(ctx context.Context, id dormouse.SessionID, thread dormouse.ThreadID) (Row, error) {
	return post[Row](ctx, c, id, "continue", onThread{thread})
}

// Hibernate hibernates the sandbox.
func (c *Client) Hibernate(ctx context.Context, id dormouse.SessionID) (Row, error) {
	return post[Row](ctx, c, id, "hibernate", struct{}{})
}

// Wake starts the sandbox of a hibernated session without a prompt.
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
