// Package tool is the tools that a model may call. A tool only translates: the model's
// input into a call for the runner or an action of the session, and a result into
// content for the model. It has no side effects itself, so that every effect passes
// through the op journal.
package tool

import (
	"encoding/json"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

// Tool is one thing a model may call.
type Tool interface {
	Spec() model.Tool
}

// sandboxTool is a tool that runs in the sandbox.
type sandboxTool interface {
	// Call decodes the model's input; an error is returned to the model.
	Call(input json.RawMessage) (runner.Call, error)
	// Result renders a result for the model and reports whether it is an error.
	Result(r runner.Result) (content []dormouse.Block, failed bool)
}

// actionTool is a tool that performs an action of the session.
type actionTool interface {
	// Action decodes the model's input; an error is returned to the model.
	Action(input json.RawMessage) (Action, error)
}

// Request is a decoded tool call: an action of the session if Action is not nil, else
// a call for the runner.
type Request struct {
	Call   runner.Call
	Action Action
}

// Set is the built-in tools.
type Set struct{ tools []Tool }

// Builtin returns the tools that need nothing but a session and its sandbox.
func Builtin() *Set {
	return &Set{tools: []Tool{
		bash{},
		read{},
		write{},
		edit{},
		glob{},
		grep{},
		task{},
		questionAsk{},
		wakeupSchedule{},
		wakeupCancel{},
		wakeupList{},
		childSpawn{},
		childMessage{},
		childWait{},
		childRead{},
		childTerminate{},
		workspaceSnapshot{},
		workspaceRestore{},
		workspaceBranch{},
		workspaceList{},
		workspaceDelete{},
	}}
}

// Names lists the tools.
func (s *Set) Names() []string {
	var names []string
	for _, t := range s.tools {
		names = append(names, t.Spec().Name)
	}
	return names
}

// Has reports whether there is a tool of this name.
func (s *Set) Has(name string) bool { return s.find(name) != nil }

// Specs describes to the model what an agent may call.
func (s *Set) Specs(a dormouse.AgentConfig) []model.Tool {
	var specs []model.Tool
	for _, t := range s.tools {
		for _, c := range a.Tools {
			if c.Name == t.Spec().Name {
				specs = append(specs, t.Spec())
			}
		}
	}
	for _, c := range a.CustomTools {
		schema := c.InputSchema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		specs = append(specs, model.Tool{Name: c.Name, Description: c.Description, InputSchema: schema})
	}
	return specs
}

// Call decodes a model's call of one of the enabled tools.
func (s *Set) Call(enabled []dormouse.ToolConfig, name string, input json.RawMessage) (r Request, err error) {
	for _, c := range enabled {
		if c.Name != name {
			continue
		}
		switch t := s.find(name).(type) {
		case sandboxTool:
			r.Call, err = t.Call(input)
			return r, err
		case actionTool:
			r.Action, err = t.Action(input)
			return r, err
		}
	}
	return r, fmt.Errorf("there is no tool named %q", name)
}

// Result renders a runner's result for the model.
func (s *Set) Result(name string, r runner.Result) (content []dormouse.Block, failed bool) {
	t, ok := s.find(name).(sandboxTool)
	if !ok {
		return nil, true
	}
	content, failed = t.Result(r)
	for i, b := range content {
		content[i].Text = dormouse.CleanText(b.Text)
	}
	return content, failed
}

// MaxText bounds the characters of text in one result.
const MaxText = 100_000

// textContent is the content of a result that is text.
func textContent(text string) []dormouse.Block {
	if text == "" {
		text = "(no output)"
	}
	return []dormouse.Block{dormouse.Text(text)}
}

// truncate returns at most the first most characters of a text. A sandbox may send more
// than it was asked for.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for i := range text {
		if most--; most < 0 {
			return text[:i]
		}
	}
	return text
}

func (s *Set) find(name string) Tool {
	for _, t := range s.tools {
		if t.Spec().Name == name {
			return t
		}
	}
	return nil
}

// decode decodes an input strictly, so that the model is told of unknown fields.
func decode(input json.RawMessage, into any) error {
	if err := closedjson.Decode(input, into); err != nil {
		return fmt.Errorf("input does not fit the tool: %w", err)
	}
	return nil
}
