package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Question is a tool call that waits for an answer from outside: an approval, the result of a
// custom tool, or the answer to a question of the agent.
type Question struct {
	ToolUse dormouse.EventID  `json:"tool_use_id"`
	Kind    dormouse.OpKind   `json:"kind"`
	Thread  dormouse.ThreadID `json:"thread"`
	Name    string            `json:"name"`
	Input   json.RawMessage   `json:"input,omitempty"`
	// Question and Options are set if it is a question of the agent.
	Question string    `json:"question,omitempty"`
	Options  []string  `json:"options,omitempty"`
	Asked    time.Time `json:"asked_at"`
	Expires  time.Time `json:"expires_at,omitzero"`
}

// Questions lists the tool calls of all threads that wait for an answer.
func (c *Client) Questions(ctx context.Context, id dormouse.SessionID) ([]Question, error) {
	a, err := get[struct {
		Questions []Question `json:"questions"`
	}](ctx, c, of(id, "questions"), nil)
	return a.Questions, err
}

// AnswerOptions answer a Question: an approval with Result, a question of the agent with
// Answer, a custom tool with Content.
type AnswerOptions struct {
	// ToolUse is the tool call of an approval or a question, CustomToolUse that of a
	// custom tool.
	ToolUse       dormouse.EventID `json:"tool_use_id,omitempty"`
	CustomToolUse dormouse.EventID `json:"custom_tool_use_id,omitempty"`
	// Result is allow or deny. DenyMessage tells the agent why.
	Result      string           `json:"result,omitempty"`
	DenyMessage string           `json:"deny_message,omitempty"`
	Answer      []dormouse.Block `json:"answer,omitempty"`
	Content     []dormouse.Block `json:"content,omitempty"`
	IsError     bool             `json:"is_error,omitempty"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
}

// Answer answers a Question. The first answer wins.
func (c *Client) Answer(ctx context.Context, id dormouse.SessionID, o AnswerOptions) (Row, error) {
	return post[Row](ctx, c, id, "answers", o)
}
