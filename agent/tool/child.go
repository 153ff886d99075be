package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

//go:embed child_spawn.md
var childSpawnText string

//go:embed child_message.md
var childMessageText string

//go:embed child_wait.md
var childWaitText string

//go:embed child_read.md
var childReadText string

//go:embed child_terminate.md
var childTerminateText string

// Limits of one wait for a child and of one read of its transcript.
const (
	childWaitDefault = time.Minute
	maxChildWait     = time.Hour
	childReadDefault = 10
	maxChildRead     = 100
)

type childSpawn struct{}

type childSpawnInput struct {
	Prompt string    `json:"prompt" jsonschema:"What the child is asked to do."`
	Title  string    `json:"title,omitempty" jsonschema:"What to call it."`
	System string    `json:"system,omitempty" jsonschema:"Its system prompt; yours if not given."`
	Tools  *[]string `json:"tools,omitempty" jsonschema:"Which of your tools it has; all of them if not given."`
}

var childSpawnSchema = schemaFor[childSpawnInput]()

func (childSpawn) Spec() model.Tool {
	return model.Tool{Name: "child_spawn", Description: childSpawnText, InputSchema: childSpawnSchema}
}

func (childSpawn) Action(input json.RawMessage) (Action, error) {
	var in childSpawnInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	content, err := promptContent("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Spawn{Title: in.Title, System: in.System, Tools: in.Tools, Prompt: content}, nil
}

type childMessage struct{}

type childMessageInput struct {
	Child  dormouse.SessionID `json:"child" jsonschema:"The child's id."`
	Prompt string             `json:"prompt" jsonschema:"What to ask it."`
}

var childMessageSchema = schemaFor[childMessageInput]()

func (childMessage) Spec() model.Tool {
	return model.Tool{Name: "child_message", Description: childMessageText, InputSchema: childMessageSchema}
}

func (childMessage) Action(input json.RawMessage) (Action, error) {
	var in childMessageInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	content, err := promptContent("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Message{Child: in.Child, Content: content}, childID(in.Child)
}

type childWait struct{}

type childWaitInput struct {
	Child   dormouse.SessionID `json:"child" jsonschema:"The child's id."`
	Timeout int64              `json:"timeout_seconds,omitempty" jsonschema:"How long to wait; 60 if not given."`
}

var childWaitSchema = schemaFor[childWaitInput](minimum("timeout_seconds", 0))

func (childWait) Spec() model.Tool {
	return model.Tool{Name: "child_wait", Description: childWaitText, InputSchema: childWaitSchema}
}

func (childWait) Action(input json.RawMessage) (Action, error) {
	var in childWaitInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	wait, err := seconds("timeout_seconds", in.Timeout, childWaitDefault, maxChildWait)
	return Wait{Child: in.Child, For: wait}, errors.Join(err, childID(in.Child))
}

type childRead struct{}

type childReadInput struct {
	Child dormouse.SessionID `json:"child" jsonschema:"The child's id."`
	Last  int                `json:"last,omitempty" jsonschema:"How many entries to read; 10 if not given."`
}

var childReadSchema = schemaFor[childReadInput](minimum("last", 0), maximum("last", maxChildRead))

func (childRead) Spec() model.Tool {
	return model.Tool{Name: "child_read", Description: childReadText, InputSchema: childReadSchema}
}

func (childRead) Action(input json.RawMessage) (Action, error) {
	var in childReadInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Last < 0 || in.Last > maxChildRead:
		return nil, fmt.Errorf("last must be between 1 and %d", maxChildRead)
	case in.Last == 0:
		in.Last = childReadDefault
	}
	return Look(in), childID(in.Child)
}

type childTerminate struct{}

type childTerminateInput struct {
	Child dormouse.SessionID `json:"child" jsonschema:"The child's id."`
}

var childTerminateSchema = schemaFor[childTerminateInput]()

func (childTerminate) Spec() model.Tool {
	return model.Tool{Name: "child_terminate", Description: childTerminateText, InputSchema: childTerminateSchema}
}

func (childTerminate) Action(input json.RawMessage) (Action, error) {
	var in childTerminateInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	return EndChild(in), childID(in.Child)
}
