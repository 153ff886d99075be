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

//go:embed edit.md
var editText string

// maxEdit bounds the old and the new text together.
const maxEdit = 8 << 20

type edit struct{}

type editInput struct {
	Path string  `json:"file_path" jsonschema:"The file, relative to the workspace or absolute."`
	Old  *string `json:"old_string" jsonschema:"The text to replace."`
	New  *string `json:"new_string" jsonschema:"What takes its place."`
	All  bool    `json:"replace_all,omitempty" jsonschema:"Replace it wherever it is."`
}

var editSchema = schemaFor[editInput]()

func (edit) Spec() model.Tool {
	return model.Tool{Name: "edit", Description: editText, InputSchema: editSchema}
}

func (edit) Call(input json.RawMessage) (runner.Call, error) {
	var in editInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkPath("file_path", in.Path); err != nil {
		return runner.Call{}, err
	}
	switch {
	case in.Old == nil || in.New == nil:
		return runner.Call{}, errors.New("old_string and new_string are needed")
	case *in.Old == "":
		return runner.Call{}, errors.New("old_string is empty; use write for a new file")
	case *in.Old == *in.New:
		return runner.Call{}, errors.New("old_string and new_string are the same")
	case len(*in.Old)+len(*in.New) > maxEdit:
		return runner.Call{}, fmt.Errorf("old_string and new_string have %d bytes, at most %d are taken", len(*in.Old)+len(*in.New), maxEdit)
	}
	return runner.Call{Kind: dormouse.OpWrite, Edit: &runner.Edit{
		Path: in.Path, Old: []byte(*in.Old), New: []byte(*in.New), All: in.All,
	}}, nil
}

func (edit) Result(r runner.Result) ([]dormouse.Block, bool) {
	switch {
	case r.Error != "":
		return textContent(truncate(r.Error, MaxText)), true
	case r.Count == 1:
		return textContent("replaced it in one place"), false
	}
	return textContent(fmt.Sprintf("replaced it in %d places", r.Count)), false
}
