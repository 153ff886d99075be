package tool

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed read.md
var readText string

type read struct{}

type readInput struct {
	Path  string  `json:"file_path" jsonschema:"The file, relative to the workspace or absolute."`
	Range []int64 `json:"view_range,omitempty" jsonschema:"The first and the last line to read, from 1; -1 is the last line."`
}

// readSchema is that of a slice: a [2]int64 would derive the bounds of view_range, but decodes three numbers too.
var readSchema = schemaFor[readInput](minItems("view_range", 2), maxItems("view_range", 2))

func (read) Spec() model.Tool {
	return model.Tool{Name: "read", Description: readText, InputSchema: readSchema}
}

func (read) Call(input json.RawMessage) (runner.Call, error) {
	var in readInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if err := checkPath("file_path", in.Path); err != nil {
		return runner.Call{}, err
	}
	rd := &runner.Read{Path: in.Path}
	if in.Range != nil {
		if len(in.Range) != 2 {
			return runner.Call{}, errors.New("view_range must be two numbers")
		}
		rd.From, rd.To = in.Range[0], in.Range[1]
		if rd.From < 1 || rd.To != -1 && rd.To < rd.From {
			return runner.Call{}, errors.New("view_range must begin at 1 or later and not end before, or end with -1")
		}
	}
	return runner.Call{Kind: dormouse.OpRead, Read: rd}, nil
}

// images are the image types that models take.
var images = []string{runner.MediaPNG, runner.MediaJPEG, runner.MediaGIF, runner.MediaWebP}

func (read) Result(r runner.Result) ([]dormouse.Block, bool) {
	switch {
	case r.Error != "":
		return textContent(truncate(r.Error, MaxText)), true
	case r.Media == runner.MediaDirectory:
		return textContent(listing(r, "(the directory is empty)")), false
	case slices.Contains(images, r.Media) && len(r.Output) <= runner.MaxImage:
		return []dormouse.Block{{Type: "image", Source: dormouse.Encode(imageSource{
			Type: "base64", Media: r.Media, Data: base64.StdEncoding.EncodeToString(r.Output),
		})}}, false
	case len(r.Output) == 0:
		return textContent("(the file is empty)"), false
	}
	return textContent(numberLines(r)), false
}

type imageSource struct {
	Type  string `json:"type"`
	Media string `json:"media_type"`
	Data  string `json:"data"`
}

// numberLines renders a text with a number before every line.
func numberLines(r runner.Result) string {
	var b strings.Builder
	rest, line, left := dormouse.CleanText(string(r.Output)), max(r.Line, 1), MaxText
	for first := line; rest != ""; line++ {
		text, after, ended := strings.Cut(rest, "\n")
		number := fmt.Sprintf("%6d\t", line)
		whole := ended || !r.More
		if most := left - len(number) - 1; !whole || len(text) > most {
			if line > first {
				break
			}
			b.WriteString(number + truncate(text, most))
			note(&b, "… line %d is cut off here …", line)
			return b.String()
		}
		b.WriteString(number + text)
		if ended {
			b.WriteByte('\n')
		}
		left -= len(number) + len(text) + 1
		rest = after
	}
	if rest != "" || r.More {
		note(&b, "… read on with view_range [%d, -1] …", line)
	}
	return b.String()
}

// listing renders what was found, and a note about what was left out.
func listing(r runner.Result, nothing string) string {
	if len(r.Output) == 0 && r.Note == "" {
		return nothing
	}
	var b strings.Builder
	b.WriteString(truncate(string(r.Output), MaxText-maxNote))
	if r.Note != "" {
		note(&b, "%s", truncate(r.Note, maxNote-10))
	}
	return b.String()
}

func checkPath(field, path string) error {
	switch {
	case strings.TrimSpace(path) == "":
		return fmt.Errorf("%s is empty", field)
	case len(path) > 4096:
		return fmt.Errorf("%s is longer than 4096 bytes", field)
	case strings.IndexByte(path, 0) >= 0:
		return fmt.Errorf("%s contains a NUL byte", field)
	}
	return nil
}
