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

type grepInput struct {
	Pattern string `json:"pattern" jsonschema:"The regular expression."`
	Path    string `json:"path,omitempty" jsonschema:"The file or directory to look in; the workspace if not given."`
}

var grepSchema = schemaFor[grepInput]()

func (grep) Spec() model.Tool {
	return model.Tool{Name: "grep", Description: grepText, InputSchema: grepSchema}
}

func (grep) Call(input json.RawMessage) (runner.Call, error) {
	var in grepInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkSearch(in.Pattern, in.Path); err != nil {
		return runner.Call{}, err
	}
	return runner.Call{Kind: dormouse.OpRead, Grep: &runner.Grep{Path: in.Path, Pattern: in.Pattern}}, nil
}

func (grep) Result(r runner.Result) ([]dormouse.Block, bool) {
	if r.Error != "" {
		return textContent(truncate(r.Error, MaxText)), true
	}
	return textContent(listing(r, "(no line fits)")), false
}
