package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// maxBody bounds a request's body.
const maxBody = 40 << 20

// decode reads the body into v, which points to a struct. A field that v does not
// have is refused, as one of the wrong type is. No body leaves v as it is.
func (c call) decode(v any) error {
	c.ReadsBody(v)
	body, err := c.ReadBody(maxBody)
	if err != nil || len(body) == 0 {
		return err
	}
	if !door.IsJSON(c.R.Header) {
		return &door.Refusal{
			Status: http.StatusUnsupportedMediaType, Type: "unsupported_media_type",
			Message: "send the body as Content-Type: application/json, not compressed",
		}
	}
	return decodeJSON(body, v)
}

// maxDepth bounds how deep the values of a body may be nested.
const maxDepth = 1000

// decodeJSON reads one JSON object and nothing else.
func decodeJSON(body []byte, v any) error {
	if err := closedjson.DecodeObject(body, v, maxDepth); err != nil {
		return explain(err)
	}
	return nil
}

// explain words a decoding error for the client.
func explain(err error) error {
	e := closedjson.Explain(err)
	switch {
	case e.Unknown:
		return fmt.Errorf("unknown field %q: %w", shorten(e.Path), dormouse.ErrInvalid)
	case e.Path == "":
		return fmt.Errorf("the body: %s: %w", e.Message, dormouse.ErrInvalid)
	}
	return fmt.Errorf("field %q %s: %w", shorten(e.Path), e.Message, dormouse.ErrInvalid)
}

// content reads a field that is text or a list of blocks.
func content(field string, raw json.RawMessage) ([]dormouse.Block, error) {
	if absent(raw) {
		return nil, fmt.Errorf("field %q is missing: %w", field, dormouse.ErrInvalid)
	}
	var blocks []dormouse.Block
	switch raw[0] {
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, explain(err)
		}
		blocks = []dormouse.Block{dormouse.Text(text)}
	case '[':
		if err := closedjson.Decode(raw, &blocks); err != nil {
			return nil, fmt.Errorf("field %q: %w", field, explain(err))
		}
	default:
		return nil, fmt.Errorf("field %q must be a string or a list of blocks: %w", field, dormouse.ErrInvalid)
	}
	if err := dormouse.ValidateContent(blocks); err != nil {
		return nil, fmt.Errorf("field %q: %w", field, err)
	}
	return blocks, nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// digest is the digest of content by what it means: neither how its JSON is written
// nor the order of its fields changes it.
func digest(blocks []dormouse.Block) (dormouse.Digest, error) {
	b, err := json.Marshal(blocks)
	if err != nil {
		return "", fmt.Errorf("encode content: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var meaning any
	if err := dec.Decode(&meaning); err != nil {
		return "", fmt.Errorf("encode content: %w", err)
	}
	if b, err = json.Marshal(meaning); err != nil {
		return "", fmt.Errorf("encode content: %w", err)
	}
	return dormouse.DigestOf(b), nil
}
