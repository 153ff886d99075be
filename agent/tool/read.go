package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed read.md
var readText string

// maxRead bounds what one read shows a model.
const maxRead = 256 << 10

type read struct{}

type readInput struct {
	Path   string `json:"file_path"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`
}

func (read) Spec() model.Tool {
	return model.Tool{Name: "read", Description: readText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"file_path":{"type":"string","description":"The file, relative to the workspace or absolute."},` +
		`"offset":{"type":"integer","minimum":0,"description":"The byte to begin at."},` +
		`"limit":{"type":"integer","minimum":0,"description":"How many bytes to read."}},` +
		`"required":["file_path"],"additionalProperties":false}`)}
}

func (read) Call(input json.RawMessage) (runner.Call, error) {
	var in readInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkPath(in.Path); err != nil {
		return runner.Call{}, err
	}
	if in.Offset < 0 || in.Limit < 0 {
		return runner.Call{}, errors.New("offset and limit cannot be negative")
	}
	limit := in.Limit
	if limit == 0 || limit > maxRead {
		limit = maxRead
	}
	return runner.Call{Kind: dormouse.OpRead, Read: &runner.Read{Path: in.Path, Offset: in.Offset, Limit: limit}}, nil
}

func (read) Result(r runner.Result) (string, bool) {
	if r.Error != "" {
		return r.Error, true
	}
	text := string(r.Output)
	if left := r.Size - int64(len(r.Output)); left > 0 {
		text += fmt.Sprintf("\n[… the file has %d bytes; %d are not shown …]", r.Size, left)
	}
	return text, false
}

func checkPath(path string) error {
	switch {
	case strings.TrimSpace(path) == "":
		return errors.New("file_path is empty")
	case len(path) > 4096:
		return errors.New("file_path is longer than 4096 bytes")
	case strings.IndexByte(path, 0) >= 0:
		return errors.New("file_path contains a NUL byte")
	}
	return nil
}
