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

type globInput struct {
	Pattern string `json:"pattern" jsonschema:"The pattern of names, relative to path."`
	Path    string `json:"path,omitempty" jsonschema:"The directory to look below; the workspace if not given."`
}

var globSchema = schemaFor[globInput]()

// checkSearch validates the input of glob and of grep.
func checkSearch(pattern, path string) error {
	if err := runner.ValidatePattern(pattern); err != nil {
		return err
	}
	if path == "" {
		return nil
	}
	return checkPath("path", path)
}

func (glob) Spec() model.Tool {
	return model.Tool{Name: "glob", Description: globText, InputSchema: globSchema}
}

func (glob) Call(input json.RawMessage) (runner.Call, error) {
	var in globInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkSearch(in.Pattern, in.Path); err != nil {
		return runner.Call{}, err
	}
	return runner.Call{Kind: dormouse.OpRead, Glob: &runner.Glob{Path: in.Path, Pattern: in.Pattern}}, nil
}

func (glob) Result(r runner.Result) ([]dormouse.Block, bool) {
	if r.Error != "" {
		return textContent(truncate(r.Error, MaxText)), true
	}
	return textContent(listing(r, "(no file fits)")), false
}
