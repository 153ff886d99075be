package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed write.md
var writeText string

// maxWrite bounds one written file.
const maxWrite = 8 << 20

type write struct{}

type writeInput struct {
	Path    string  `json:"file_path" jsonschema:"The file, relative to the workspace or absolute."`
	Content *string `json:"content" jsonschema:"The whole new content."`
}

var writeSchema = schemaFor[writeInput]()

func (write) Spec() model.Tool {
	return model.Tool{Name: "write", Description: writeText, InputSchema: writeSchema}
}

func (write) Call(input json.RawMessage) (runner.Call, error) {
	var in writeInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkPath("file_path", in.Path); err != nil {
		return runner.Call{}, err
	}
	switch {
	case in.Content == nil:
		return runner.Call{}, errors.New("content is needed")
	case len(*in.Content) > maxWrite:
		return runner.Call{}, fmt.Errorf("content is %d bytes, at most %d are taken", len(*in.Content), maxWrite)
	}
	return runner.Call{Kind: dormouse.OpWrite, Write: &runner.Write{Path: in.Path, Content: []byte(*in.Content)}}, nil
}

func (write) Result(r runner.Result) ([]dormouse.Block, bool) {
	if r.Error != "" {
		return textContent(truncate(r.Error, MaxText)), true
	}
	return textContent(fmt.Sprintf("wrote %d bytes", r.Size)), false
}
