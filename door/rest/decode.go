package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
)

// maxBody bounds a request's body.
const maxBody = 40 << 20

// decode reads the body into v, which points to a struct. Nothing is guessed: a
// field nobody knows is as wrong as one of the wrong type. No body leaves v as
// it is.
func (c call) decode(v any) error {
	c.ReadsBody(v)
	body, err := io.ReadAll(http.MaxBytesReader(c.W, c.R.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("the body is over %d bytes: %w", maxBody, dormouse.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("the body could not be read: %w", dormouse.ErrInvalid)
	}
	if len(body) == 0 {
		return nil
	}
	if err := checkType(c.R.Header); err != nil {
		return err
	}
	return decodeJSON(body, v)
}

func checkType(h http.Header) error {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, given := params["charset"]
	if err != nil || kind != "application/json" || given && !strings.EqualFold(charset, "utf-8") || h.Get("Content-Encoding") != "" {
		return &door.Refusal{
			Status: http.StatusUnsupportedMediaType, Type: "unsupported_media_type",
			Message: "send the body as Content-Type: application/json, not compressed",
		}
	}
	return nil
}

// decodeJSON reads one JSON object and nothing else.
func decodeJSON(body []byte, v any) error {
	if !utf8.Valid(body) {
		return fmt.Errorf("the body is not valid UTF-8: %w", dormouse.ErrInvalid)
	}
	if hasNUL(body) {
		return fmt.Errorf("the body contains a NUL character: %w", dormouse.ErrInvalid)
	}
	if err := checkKeys(body, v); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return explain(err)
	}
	return nil
}

// explain words a decoding error for the client.
func explain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q must be %s, not %s: %w", e.Field, word(e.Type), e.Value, dormouse.ErrInvalid)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown field %s: %w", name, dormouse.ErrInvalid)
	}
	return fmt.Errorf("the body is not JSON: %s: %w", strings.TrimPrefix(err.Error(), "json: "), dormouse.ErrInvalid)
}

func word(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the other kinds are numbers, or not in any request
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// hasNUL reports whether a JSON text spells a NUL character. Bare ones are not
// JSON to begin with.
func hasNUL(body []byte) bool {
	for i := 0; i < len(body); i++ {
		j := bytes.IndexByte(body[i:], '\\')
		if j < 0 {
			return false
		}
		i += j + 1 // at what is escaped
		if bytes.HasPrefix(body[i:], []byte("u0000")) {
			return true
		}
	}
	return false
}

// checkKeys refuses what the decoder would let pass: a body that is no object,
// more than one value, a name twice, and a field in another spelling.
func checkKeys(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil {
		return explain(err)
	} else if t != json.Delim('{') {
		return fmt.Errorf("the body must be a JSON object: %w", dormouse.ErrInvalid)
	}
	if err := walkObject(dec, fieldNames(v), 1); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is something after the JSON object: %w", dormouse.ErrInvalid)
	}
	return nil
}

// maxDepth bounds how deep values may lie in each other. The decoder counts no
// depth as it reads token by token, and no stack is deep enough for a body full
// of brackets.
const maxDepth = 1000

// walkObject reads to the end of an object that was begun at this depth; known,
// if not nil, is every name it may have.
func walkObject(dec *json.Decoder, known map[string]bool, depth int) error {
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return explain(err)
		}
		name, _ := t.(string)
		if known != nil && !known[name] {
			return fmt.Errorf("unknown field %q: %w", shorten(name), dormouse.ErrInvalid)
		}
		if seen[name] {
			return fmt.Errorf("field %q is given twice: %w", shorten(name), dormouse.ErrInvalid)
		}
		seen[name] = true
		if err := walkValue(dec, depth+1); err != nil {
			return err
		}
	}
	return closeDelim(dec)
}

func walkValue(dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the body is more than %d values deep: %w", maxDepth, dormouse.ErrInvalid)
	}
	t, err := dec.Token()
	if err != nil {
		return explain(err)
	}
	switch t {
	case json.Delim('{'):
		return walkObject(dec, nil, depth)
	case json.Delim('['):
		for dec.More() {
			if err := walkValue(dec, depth+1); err != nil {
				return err
			}
		}
		return closeDelim(dec)
	}
	return nil
}

func closeDelim(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return explain(err)
	}
	return nil
}

func fieldNames(v any) map[string]bool {
	names := make(map[string]bool)
	for field := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
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
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&blocks); err != nil {
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

// digest names content by what it means: neither the spelling of its JSON nor
// the order of its fields makes another body.
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

// query reads the URL's parameters, refusing any that a route does not have. A
// route says "tag+" of a name that may be given again and again, and
// "metadata.*" of every name that begins so.
func (c call) query(known ...string) (url.Values, error) {
	c.ReadsParams(known...)
	q, err := url.ParseQuery(c.R.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", dormouse.ErrInvalid)
	}
	for name, values := range q {
		repeatable := slices.Contains(known, name+"+")
		switch {
		case !repeatable && !slices.ContainsFunc(known, func(k string) bool { return means(k, name) }):
			return nil, fmt.Errorf("unknown parameter %q: %w", shorten(name), dormouse.ErrInvalid)
		case len(values) > 1 && !repeatable:
			return nil, fmt.Errorf("parameter %q is given twice: %w", shorten(name), dormouse.ErrInvalid)
		}
		if err := dormouse.ValidateText(name + strings.Join(values, "")); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", shorten(name), err)
		}
	}
	return q, nil
}

// means reports whether a parameter is the one a route knows as known.
func means(known, name string) bool {
	if prefix, ok := strings.CutSuffix(known, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return known == name
}

func flag(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "":
		return q.Has(name), nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("parameter %q must be true or false: %w", name, dormouse.ErrInvalid)
}

// limit reads how many are wanted: at least one, and never more than most.
func limit(q url.Values, usual, most int) (int, error) {
	if !q.Has("limit") {
		return usual, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parameter \"limit\" must be a number from 1 to %d: %w", most, dormouse.ErrInvalid)
	}
	return min(n, most), nil
}

func cursor(name, value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s must be the number of an event, not %q: %w", name, shorten(value), dormouse.ErrInvalid)
	}
	return n, nil
}
