package v1

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// block is one piece of content as clients send it.
type block struct{ dormouse.Block }

// DecodeJSON implements closedjson.Decoder.
func (b *block) DecodeJSON(raw []byte) error {
	t, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	b.Type = t
	switch t {
	case "text":
		var p struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := closedjson.Bind(raw, &p); err != nil {
			return err
		}
		if p.Text == "" {
			return closedjson.In("text", closedjson.Errorf("is empty"))
		}
		b.Text = p.Text
	case "image":
		var p struct {
			Type   string      `json:"type"`
			Source imageSource `json:"source"`
		}
		if err := closedjson.Bind(raw, &p); err != nil {
			return err
		}
		b.Source = p.Source.raw
	case "document":
		var p struct {
			Type    string                      `json:"type"`
			Source  documentSource              `json:"source"`
			Title   closedjson.Optional[string] `json:"title"`
			Context closedjson.Optional[string] `json:"context"`
		}
		if err := closedjson.Bind(raw, &p); err != nil {
			return err
		}
		b.Source, b.Title, b.Context = p.Source.raw, p.Title.Value, p.Context.Value
	case "search_result":
		return b.searchResult(raw)
	case "redacted":
		return closedjson.In("type", closedjson.Errorf("redacted is what the server shows, and cannot be sent"))
	default:
		return closedjson.In("type", closedjson.Errorf("%q is not known", closedjson.Name(t)))
	}
	return nil
}

func (b *block) searchResult(raw []byte) error {
	var p struct {
		Type    string `json:"type"`
		Source  string `json:"source"`
		Title   string `json:"title"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Citations struct {
			Enabled bool `json:"enabled"`
		} `json:"citations"`
	}
	if err := closedjson.Bind(raw, &p); err != nil {
		return err
	}
	if p.Source == "" || p.Title == "" {
		return closedjson.Errorf("source and title cannot be empty")
	}
	for i, c := range p.Content {
		if c.Type != "text" || c.Text == "" {
			return closedjson.Errorf("content[%d] must be a text that is not empty", i)
		}
	}
	b.Source, b.Title = dormouse.Encode(p.Source), p.Title
	b.Content, b.Citations = dormouse.Encode(p.Content), dormouse.Encode(p.Citations)
	return nil
}

// source is where an image or a document is.
type source struct {
	Type string                      `json:"type"`
	Kind closedjson.Optional[string] `json:"media_type"`
	Data closedjson.Optional[string] `json:"data"`
	URL  closedjson.Optional[string] `json:"url"`
	File closedjson.Optional[string] `json:"file_id"`
}

type (
	imageSource    struct{ raw json.RawMessage }
	documentSource struct{ raw json.RawMessage }
)

// DecodeJSON implements closedjson.Decoder.
func (s *imageSource) DecodeJSON(raw []byte) (err error) {
	s.raw, err = readSource(raw, imageTypes, "base64", "url")
	return err
}

// DecodeJSON implements closedjson.Decoder.
func (s *documentSource) DecodeJSON(raw []byte) (err error) {
	s.raw, err = readSource(raw, documentTypes, "base64", "text", "url")
	return err
}

// What models take. Anything else would stay in the conversation, and fail every
// turn from then on.
var (
	imageTypes    = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	documentTypes = []string{"application/pdf"}
)

// readSource reads a source of one of the kinds and encodes it anew: the order of its
// fields does not matter.
func readSource(raw []byte, types []string, kinds ...string) (json.RawMessage, error) {
	var p source
	if err := closedjson.Bind(raw, &p); err != nil {
		return nil, err
	}
	need := func(fields ...closedjson.Optional[string]) bool {
		n := 0
		for _, f := range []closedjson.Optional[string]{p.Kind, p.Data, p.URL, p.File} {
			if f.Set {
				n++
			}
		}
		for _, f := range fields {
			if f.Or("") == "" {
				return false
			}
		}
		return n == len(fields)
	}
	for _, k := range kinds {
		if k != p.Type {
			continue
		}
		out := map[string]string{"type": p.Type}
		switch k {
		case "url":
			if !need(p.URL) {
				return nil, closedjson.Errorf("a source of type url has a url and nothing else")
			}
			if !strings.HasPrefix(p.URL.Value, "https://") && !strings.HasPrefix(p.URL.Value, "http://") {
				return nil, closedjson.In("url", closedjson.Errorf("must begin with https:// or http://"))
			}
			out["url"] = p.URL.Value
		default:
			if !need(p.Kind, p.Data) || k == "text" && p.Kind.Value != "text/plain" {
				return nil, closedjson.Errorf("a source of type %s has media_type and data and nothing else; that of a text is text/plain", k)
			}
			if k == "base64" {
				if err := checkData(p.Kind.Value, types, p.Data.Value); err != nil {
					return nil, err
				}
			}
			out["media_type"], out["data"] = p.Kind.Value, p.Data.Value
		}
		return dormouse.Encode(out), nil
	}
	if p.Type == "file" {
		return nil, closedjson.In("type", closedjson.Errorf("files are not served yet; send the content itself"))
	}
	return nil, closedjson.In("type", closedjson.Errorf("%q is not known here", closedjson.Name(p.Type)))
}

func checkData(kind string, types []string, data string) error {
	if !slices.Contains(types, kind) {
		last := len(types) - 1
		known := types[last]
		if last > 0 {
			known = strings.Join(types[:last], ", ") + " or " + known
		}
		return closedjson.In("media_type", closedjson.Errorf("must be %s, not %q", known, closedjson.Name(kind)))
	}
	_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding.Strict(), strings.NewReader(data)))
	if err != nil || strings.ContainsAny(data, "\r\n") {
		return closedjson.In("data", closedjson.Errorf("is not base64"))
	}
	return nil
}

func blocksOf(in []block) []dormouse.Block {
	out := make([]dormouse.Block, len(in))
	for i, b := range in {
		out[i] = b.Block
	}
	return out
}
