package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Question is a tool call that only people can answer: a permission, a custom
// tool, or words that the agent asked for.
type Question struct {
	ToolUse dormouse.EventID  `json:"tool_use_id"`
	Kind    dormouse.OpKind   `json:"kind"`
	Thread  dormouse.ThreadID `json:"thread"`
	Name    string            `json:"name"`
	Input   json.RawMessage   `json:"input,omitempty"`
	// Question and Options are what is asked when words are.
	Question string    `json:"question,omitempty"`
	Options  []string  `json:"options,omitempty"`
	Asked    time.Time `json:"asked_at"`
	Expires  time.Time `json:"expires_at,omitzero"`
}

// Questions lists what waits for people, in all threads.
func (c *Client) Questions(ctx context.Context, id dormouse.SessionID) ([]Question, error) {
	a, err := get[struct {
		Questions []Question `json:"questions"`
	}](ctx, c, of(id, "questions"), nil)
	return a.Questions, err
}

// AnswerOptions answer a tool call that waits for people: a permission with a Result, a
// question with an Answer, a custom tool with Content.
type AnswerOptions struct {
	// ToolUse is the call that a permission or a question is about, CustomToolUse the
	// call of a custom tool.
	ToolUse       dormouse.EventID `json:"tool_use_id,omitempty"`
	CustomToolUse dormouse.EventID `json:"custom_tool_use_id,omitempty"`
	// Result is allow or deny, DenyMessage why, for the agent.
	Result      string           `json:"result,omitempty"`
	DenyMessage string           `json:"deny_message,omitempty"`
	Answer      []dormouse.Block `json:"answer,omitempty"`
	Content     []dormouse.Block `json:"content,omitempty"`
	IsError     bool             `json:"is_error,omitempty"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
}

// Answer answers a tool call that waits for people. The first answer wins.
func (c *Client) Answer(ctx context.Context, id dormouse.SessionID, o AnswerOptions) (Row, error) {
	return post[Row](ctx, c, id, "answers", o)
}
