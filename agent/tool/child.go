package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
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

// How long one wait for a child may take.
const (
	childWaitUsual = time.Minute
	maxChildWait   = time.Hour
)

type childSpawn struct{}

func (childSpawn) Spec() model.Tool {
	return model.Tool{Name: "child_spawn", Description: childSpawnText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"prompt":{"type":"string","description":"What the child is asked to do."},` +
		`"title":{"type":"string","description":"What to call it."},` +
		`"system":{"type":"string","description":"Its system prompt; yours if not given."},` +
		`"tools":{"type":"array","items":{"type":"string"},"description":"Which of your tools it has; all of them if not given."}},` +
		`"required":["prompt"],"additionalProperties":false}`)}
}

func (childSpawn) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Prompt string    `json:"prompt"`
		Title  string    `json:"title"`
		System string    `json:"system"`
		Tools  *[]string `json:"tools"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	content, err := words("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Spawn{Title: in.Title, System: in.System, Tools: in.Tools, Prompt: content}, nil
}

type childMessage struct{}

func (childMessage) Spec() model.Tool {
	return model.Tool{Name: "child_message", Description: childMessageText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"child":{"type":"string","description":"The child's id."},` +
		`"prompt":{"type":"string","description":"What to ask it."}},"required":["child","prompt"],"additionalProperties":false}`)}
}

func (childMessage) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Child  dormouse.SessionID `json:"child"`
		Prompt string             `json:"prompt"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	content, err := words("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Message{Child: in.Child, Content: content}, childID(in.Child)
}

type childWait struct{}

func (childWait) Spec() model.Tool {
	return model.Tool{Name: "child_wait", Description: childWaitText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"child":{"type":"string","description":"The child's id."},` +
		`"timeout_seconds":{"type":"integer","minimum":0,"description":"How long to wait; 60 if not given."}},` +
		`"required":["child"],"additionalProperties":false}`)}
}

func (childWait) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Child   dormouse.SessionID `json:"child"`
		Timeout int64              `json:"timeout_seconds"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	wait, err := seconds("timeout_seconds", in.Timeout, childWaitUsual, maxChildWait)
	return Wait{Child: in.Child, For: wait}, errors.Join(err, childID(in.Child))
}

type childRead struct{}

func (childRead) Spec() model.Tool {
	return model.Tool{Name: "child_read", Description: childReadText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"child":{"type":"string","description":"The child's id."},` +
		`"last":{"type":"integer","minimum":0,"maximum":100,"description":"How many entries to read; 10 if not given."}},` +
		`"required":["child"],"additionalProperties":false}`)}
}

func (childRead) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Child dormouse.SessionID `json:"child"`
		Last  int                `json:"last"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	const usual, most = 10, 100
	switch {
	case in.Last < 0 || in.Last > most:
		return nil, errors.New("last must be between 1 and 100")
	case in.Last == 0:
		in.Last = usual
	}
	return Look{Child: in.Child, Last: in.Last}, childID(in.Child)
}

type childTerminate struct{}

func (childTerminate) Spec() model.Tool {
	return model.Tool{Name: "child_terminate", Description: childTerminateText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"child":{"type":"string","description":"The child's id."}},"required":["child"],"additionalProperties":false}`)}
}

func (childTerminate) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Child dormouse.SessionID `json:"child"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	return EndChild{Child: in.Child}, childID(in.Child)
}
