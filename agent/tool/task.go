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

type taskInput struct {
	Command string `json:"command" jsonschema:"The command to start."`
}

var taskSchema = schemaFor[taskInput]()

func (task) Spec() model.Tool {
	return model.Tool{Name: "task", Description: taskText, InputSchema: taskSchema}
}

func (task) Call(input json.RawMessage) (runner.Call, error) {
	var in taskInput
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
	return textContent(truncate(b.String(), MaxText)), r.Error != ""
}
