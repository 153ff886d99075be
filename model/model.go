// Package model is the port of language models: a request goes in, a reply comes out, and
// fragments of the reply on the way.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Model answers requests.
type Model interface {
	// Reply answers r. If it streams, it must call delta for every fragment of
	// text in order, from one goroutine, and the fragments of a block must add up
	// to its text; an error from delta must end the call. It must return when ctx
	// ends. It must never send a request twice by itself. An error must be, or
	// wrap, an *Error.
	Reply(ctx context.Context, r Request, delta func(Delta) error) (Reply, error)
}

// Keyed is implemented by models whose provider takes idempotency keys: a
// second request with the same Request.Op is answered from the first.
type Keyed interface {
	Keyed() bool
}

// Request is one call.
type Request struct {
	// Op is the call's op id, sent as idempotency key where the provider takes one.
	Op        dormouse.OpID
	Model     string
	System    string
	Messages  []Message
	Tools     []Tool
	MaxTokens int
	// Effort is how hard the model should work, in the words of its provider; empty is
	// as usual.
	Effort string
	// Counted, if not nil, is called with the usage that the provider has reported so far:
	// of a call that is cut off nothing else is known.
	Counted func(dormouse.ModelUsage) `json:"-"`
}

// Tokens is about how many tokens a request has.
func (r Request) Tokens() int64 {
	const media = 1500 // of a picture or a page, whatever its bytes
	var bytes int
	var extra int64
	var add func(parts []Part)
	add = func(parts []Part) {
		for _, p := range parts {
			bytes += len(p.Text) + len(p.Title) + len(p.Context) + len(p.Name) + len(p.Input)
			if len(p.Source) > 0 {
				extra += media
			}
			add(p.Result)
		}
	}
	for _, m := range r.Messages {
		add(m.Content)
	}
	for _, t := range r.Tools {
		bytes += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	return dormouse.Tokens(bytes+len(r.System)) + extra
}

// Message is one entry of a transcript.
type Message struct {
	Role    string `json:"role"` // user or assistant
	Content []Part `json:"content"`
}

// The roles.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Part is a block of a message as models know it: text, image, document,
// tool_use or tool_result.
type Part struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	// Source, Title and Context belong to images and documents.
	Source  json.RawMessage `json:"source,omitempty"`
	Title   string          `json:"title,omitempty"`
	Context string          `json:"context,omitempty"`
	// ID, Name and Input belong to a tool_use.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Use, Result and IsError belong to a tool_result.
	Use     string `json:"tool_use_id,omitempty"`
	Result  []Part `json:"content,omitempty"`
	IsError bool   `json:"is_error,omitempty"`
}

// The types of Part that the loop itself reads.
const (
	PartText       = "text"
	PartToolUse    = "tool_use"
	PartToolResult = "tool_result"
)

// Tool is a tool the model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// Delta is a fragment of the block with this index.
type Delta struct {
	Index int
	Text  string
}

// Reply is a whole answer.
type Reply struct {
	// Content holds text and tool_use parts, none empty, in the model's order.
	Content []Part
	// Thought says that the reply had thinking in it, which is not returned.
	Thought    bool
	StopReason string
	Usage      dormouse.ModelUsage
}

// The stop reasons the loop acts on.
const (
	StopEndTurn   = "end_turn"
	StopToolUse   = "tool_use"
	StopMaxTokens = "max_tokens"
	StopRefusal   = "refusal"
)

// Error is how a call fails.
type Error struct {
	Kind ErrorKind
	// RetryAfter is what the provider asked for, if it did.
	RetryAfter time.Duration
	Err        error
}

// ErrorKind says what sort of failure it is, in the words of session.error.
type ErrorKind string

// The kinds of failure.
const (
	Overloaded    ErrorKind = "model_overloaded_error"
	RateLimited   ErrorKind = "model_rate_limited_error"
	RequestFailed ErrorKind = "model_request_failed_error" // worth another try
	Rejected      ErrorKind = "rejected"                   // never worth another try
)

func (e *Error) Error() string { return fmt.Sprintf("model call: %s: %v", e.Kind, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether another try may succeed.
func (e *Error) Retryable() bool { return e.Kind != Rejected }

// AsError returns err as an *Error; anything else is a failed request.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: RequestFailed, Err: err}
}
