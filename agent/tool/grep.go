package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed grep.md
var grepText string

type grep struct{}

func (grep) Spec() model.Tool {
	return model.Tool{Name: "grep", Description: grepText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"The regular expression."},` +
		`"path":{"type":"string","description":"The file or directory to look in; the workspace if not given."}},` +
		`"required":["pattern"],"additionalProperties":false}`)}
}

func (grep) Call(input json.RawMessage) (runner.Call, error) {
	var in searchInput
	if err := in.read(input); err != nil {
		return runner.Call{}, err
	}
	return runner.Call{Kind: dormouse.OpRead, Grep: &runner.Grep{Path: in.Path, Pattern: in.Pattern}}, nil
}

func (grep) Result(r runner.Result) ([]dormouse.Block, bool) {
	if r.Error != "" {
		return says(bounded(r.Error, MaxText)), true
	}
	return says(listed(r, "(no line fits)")), false
}
