package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed glob.md
var globText string

type glob struct{}

// searchInput is what glob and grep are given.
type searchInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func (in *searchInput) read(input json.RawMessage) error {
	if err := decode(input, in); err != nil {
		return err
	}
	if err := runner.ValidatePattern(in.Pattern); err != nil {
		return err
	}
	if in.Path == "" {
		return nil
	}
	return checkPath("path", in.Path)
}

func (glob) Spec() model.Tool {
	return model.Tool{Name: "glob", Description: globText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"The pattern of names, relative to path."},` +
		`"path":{"type":"string","description":"The directory to look below; the workspace if not given."}},` +
		`"required":["pattern"],"additionalProperties":false}`)}
}

func (glob) Call(input json.RawMessage) (runner.Call, error) {
	var in searchInput
	if err := in.read(input); err != nil {
		return runner.Call{}, err
	}
	return runner.Call{Kind: dormouse.OpRead, Glob: &runner.Glob{Path: in.Path, Pattern: in.Pattern}}, nil
}

func (glob) Result(r runner.Result) ([]dormouse.Block, bool) {
	if r.Error != "" {
		return says(bounded(r.Error, MaxText)), true
	}
	return says(listed(r, "(no file fits)")), false
}
