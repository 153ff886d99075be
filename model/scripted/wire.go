package scripted

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse/model"
)

// The shapes of the Messages API, as far as this package speaks it.

type wireRequest struct {
	Model     string `json:"model"`
	MaxTokens int    `json:"max_tokens"`
	// System is a text or a list of text blocks.
	System   wireContent  `json:"system,omitempty"`
	Messages []wireTurn   `json:"messages"`
	Tools    []model.Tool `json:"tools,omitempty"`
	Stream   bool         `json:"stream,omitempty"`
}

type wireTurn struct {
	Role    string      `json:"role"`
	Content wireContent `json:"content"`
}

// wireContent is a list of blocks, or a text alone.
type wireContent []model.Part

func (c *wireContent) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*c = wireContent{{Type: model.PartText, Text: s}}
		return nil
	}
	// A tool_result's own content may be a text alone, too; the outer field of
	// the same name takes it before model.Part can refuse it.
	var blocks []struct {
		model.Part
		Content wireContent `json:"content"`
	}
	if err := json.Unmarshal(b, &blocks); err != nil {
		return fmt.Errorf("read content: %w", err)
	}
	*c = make(wireContent, 0, len(blocks))
	for _, block := range blocks {
		block.Result = block.Content
		*c = append(*c, block.Part)
	}
	return nil
}

func (r wireRequest) request() model.Request {
	out := model.Request{Model: r.Model, MaxTokens: r.MaxTokens, Tools: r.Tools}
	for _, p := range r.System {
		out.System += p.Text
	}
	for _, t := range r.Messages {
		out.Messages = append(out.Messages, model.Message{Role: t.Role, Content: t.Content})
	}
	return out
}

// wireMessage is a whole reply.
type wireMessage struct {
	ID         string     `json:"id"`
	Type       string     `json:"type"`
	Role       string     `json:"role"`
	Model      string     `json:"model"`
	Content    []wirePart `json:"content"`
	StopReason *string    `json:"stop_reason"`
	Sequence   *string    `json:"stop_sequence"`
	Usage      *wireUsage `json:"usage"`
}

type wirePart struct {
	Type  string          `json:"type"`
	Text  *string         `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

type wireUsage struct {
	InputTokens              int64 `json:"input_tokens,omitempty"`
	OutputTokens             int64 `json:"output_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens,omitempty"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens,omitempty"`
}

// partThinking is a block of what a model thinks. It is told that there was one,
// and not what is in it.
const partThinking = "thinking"

func newMessage(id, name string, r model.Reply) wireMessage {
	m := wireMessage{
		ID: id, Type: "message", Role: model.RoleAssistant, Model: name, StopReason: &r.StopReason,
		Content: []wirePart{},
		Usage: &wireUsage{
			InputTokens: r.Usage.InputTokens, OutputTokens: r.Usage.OutputTokens,
			CacheReadInputTokens: r.Usage.CacheReadInputTokens, CacheCreationInputTokens: r.Usage.CacheCreationInputTokens,
		},
	}
	if r.Thought {
		m.Content = append(m.Content, wirePart{Type: partThinking})
	}
	for _, p := range r.Content {
		w := wirePart{Type: p.Type, ID: p.ID, Name: p.Name, Input: p.Input}
		if p.Type == model.PartText {
			w.Text = &p.Text
		}
		m.Content = append(m.Content, w)
	}
	return m
}

// wireEvent is one event of a stream.
type wireEvent struct {
	Type    string       `json:"type"`
	Message *wireMessage `json:"message,omitempty"`
	Index   *int         `json:"index,omitempty"`
	Block   *wirePart    `json:"content_block,omitempty"`
	Delta   *wireDelta   `json:"delta,omitempty"`
	Usage   *wireUsage   `json:"usage,omitempty"`
	Error   *wireError   `json:"error,omitempty"`
}

type wireDelta struct {
	Type        string  `json:"type,omitempty"`
	Text        *string `json:"text,omitempty"`
	PartialJSON *string `json:"partial_json,omitempty"`
	StopReason  *string `json:"stop_reason,omitempty"`
	// Sequence is null in the last delta and absent in all others.
	Sequence json.RawMessage `json:"stop_sequence,omitempty"`
}

type wireFailure struct {
	Type  string    `json:"type"`
	Error wireError `json:"error"`
}

type wireError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type modelList struct {
	Data    []modelEntry `json:"data"`
	HasMore bool         `json:"has_more"`
}

type modelEntry struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}
