package closedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep values may be nested for Unmarshal.
const maxDepth = 128

// limits is what check refuses besides invalid JSON.
type limits struct {
	depth  int  // how deep values may be nested
	floats bool // refuse numbers that no float64 can hold
}

// check refuses invalid JSON, and what decoders disagree about:
// names given twice, NUL characters, and values that are nested too deep.
func check(data []byte, l limits) error {
	if !utf8.Valid(data) {
		return Errorf("the JSON is not valid UTF-8")
	}
	if err := valid(data, l.depth); err != nil {
		return err
	}
	s := scanner{data: data}
	return s.check(l, 1)
}

// valid refuses what is not one JSON value. Of what is also nested deeper than
// depth it says that, unless depth is 0.
func valid(data []byte, depth int) error {
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole)
	if err == nil {
		return nil
	}
	if depth > 0 && nesting(data) > depth {
		return tooDeep(depth)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return Errorf("not JSON at byte %d: %s", e.Offset, e.Error())
	}
	return Errorf("not JSON: %v", err)
}

// nesting is how deep the brackets are nested in a text that may not be JSON.
func nesting(data []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func tooDeep(depth int) error { return Errorf("values lie more than %d deep in each other", depth) }

// scanner walks over JSON that is known to be valid.
type scanner struct {
	data []byte
	at   int
}

// space skips white space and returns the next byte.
func (s *scanner) space() byte {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n', ',', ':':
			s.at++
		default:
			return s.data[s.at]
		}
	}
	return 0
}

// text skips a string and returns it with its quotes.
func (s *scanner) text() []byte {
	start := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[start:s.at]
}

// skip skips a value of any kind and returns it.
func (s *scanner) skip() []byte {
	s.space()
	start := s.at
	depth := 0
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case '"':
			s.text()
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		case ' ', '\t', '\r', '\n', ',', ':':
			s.at++
			continue
		default:
			s.word()
		}
		if depth == 0 {
			break
		}
	}
	return s.data[start:s.at]
}

// word skips a number, true, false or null and returns it.
func (s *scanner) word() []byte {
	n := bytes.IndexAny(s.data[s.at:], " \t\r\n,:]}")
	if n < 0 {
		n = len(s.data) - s.at
	}
	s.at += n
	return s.data[s.at-n : s.at]
}

// check walks over a value at this depth.
func (s *scanner) check(l limits, depth int) error {
	if depth > l.depth {
		return tooDeep(l.depth)
	}
	switch s.space() {
	case '"':
		return checkText(s.text())
	case '[':
		s.at++
		for s.space() != ']' {
			if err := s.check(l, depth+1); err != nil {
				return err
			}
		}
		s.at++
	case '{':
		s.at++
		seen := make(map[string]bool)
		for s.space() != '}' {
			quoted := s.text()
			if err := checkText(quoted); err != nil {
				return err
			}
			name := unquote(quoted)
			if seen[name] {
				return In(Name(name), Errorf("is given twice"))
			}
			seen[name] = true
			if err := s.check(l, depth+1); err != nil {
				return In(Name(name), err)
			}
		}
		s.at++
	default:
		word := s.word()
		if c := word[0]; l.floats && (c == '-' || c >= '0' && c <= '9') {
			if _, err := strconv.ParseFloat(string(word), 64); err != nil {
				return Errorf("must be a number that a float can hold, not %s", Name(string(word)))
			}
		}
	}
	return nil
}

// checkText refuses a NUL, which no database keeps.
func checkText(quoted []byte) error {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		if bytes.HasPrefix(quoted[i:], []byte("u0000")) {
			return Errorf("has a NUL character")
		}
	}
	return nil
}

func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic("closedjson: a string that was valid is not: " + err.Error())
	}
	return s
}

// members yields the names and values of an object, in order.
func members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		s := scanner{data: raw, at: 1}
		for s.space() != '}' {
			if name := unquote(s.text()); !yield(name, s.skip()) {
				return
			}
		}
	}
}

// elements yields the values of a list, in order.
func elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{data: raw, at: 1}
		for s.space() != ']' {
			if !yield(s.skip()) {
				return
			}
		}
	}
}

// Member is the value of a name in an object, or nil.
func Member(raw []byte, name string) []byte {
	if raw[0] != '{' {
		return nil
	}
	for n, value := range members(raw) {
		if n == name {
			return value
		}
	}
	return nil
}

// Type is the type that an object says it is of.
func Type(raw []byte) (kind string, err error) {
	if raw[0] != '{' {
		return "", wrongKind("an object", raw)
	}
	value := Member(raw, "type")
	if value == nil {
		return "", In("type", Errorf("is required"))
	}
	if err := Bind(value, &kind); err != nil {
		return "", In("type", err)
	}
	return kind, nil
}
