package tool

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed task.md
var taskText string

type task struct{}

func (task) Spec() model.Tool {
	return model.Tool{Name: "task", Description: taskText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"The command to start."}},` +
		`"required":["command"],"additionalProperties":false}`)}
}

func (task) Call(input json.RawMessage) (runner.Call, error) {
	var in struct {
		Command string `json:"command"`
	}
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkCommand(in.Command); err != nil {
		return runner.Call{}, err
	}
	return runner.Call{Kind: dormouse.OpTask, Exec: &runner.Exec{Command: in.Command}}, nil
}

func (task) Result(r runner.Result) ([]dormouse.Block, bool) {
	var b strings.Builder
	if r.Error != "" {
		note(&b, "%s", r.Error)
	} else {
		note(&b, "running in the background as process %d; its output goes to %s", r.PID, r.Log)
	}
	return says(bounded(b.String(), MaxText)), r.Error != ""
}
