package closedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"unicode/utf8"
)

// maxDepth bounds how deep values may lie in each other.
const maxDepth = 128

// check refuses what is not one JSON value, and what decoders disagree about:
// names given twice, NUL characters, and values in values without end.
func check(data []byte) error {
	if !utf8.Valid(data) {
		return Errorf("the JSON is not valid UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return Errorf("not JSON at byte %d: %s", e.Offset, e.Error())
		}
		return Errorf("not JSON: %v", err)
	}
	s := scanner{data: whole}
	return s.check(1)
}

// scanner walks over JSON that is known to be valid.
type scanner struct {
	data []byte
	at   int
}

// space goes to the next byte that means something and returns it.
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

// text goes past a string and returns it as it is spelled.
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

// skip goes past a value of any kind and returns it.
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

// word goes past a number, true, false or null.
func (s *scanner) word() {
	n := bytes.IndexAny(s.data[s.at:], " \t\r\n,:]}")
	if n < 0 {
		n = len(s.data) - s.at
	}
	s.at += n
}

func (s *scanner) check(depth int) error {
	if depth > maxDepth {
		return Errorf("values lie more than %d deep in each other", maxDepth)
	}
	switch s.space() {
	case '"':
		return checkText(s.text())
	case '[':
		s.at++
		for s.space() != ']' {
			if err := s.check(depth + 1); err != nil {
				return err
			}
		}
		s.at++
	case '{':
		s.at++
		seen := make(map[string]bool)
		for s.space() != '}' {
			spelled := s.text()
			if err := checkText(spelled); err != nil {
				return err
			}
			name := unquote(spelled)
			if seen[name] {
				return In(Name(name), Errorf("is given twice"))
			}
			seen[name] = true
			if err := s.check(depth + 1); err != nil {
				return In(Name(name), err)
			}
		}
		s.at++
	default:
		s.word()
	}
	return nil
}

// checkText refuses a NUL, which no database keeps.
func checkText(spelled []byte) error {
	for i := 0; i < len(spelled); i++ {
		if spelled[i] != '\\' {
			continue
		}
		i++
		if bytes.HasPrefix(spelled[i:], []byte("u0000")) {
			return Errorf("has a NUL character")
		}
	}
	return nil
}

func unquote(spelled []byte) string {
	if bytes.IndexByte(spelled, '\\') < 0 {
		return string(spelled[1 : len(spelled)-1])
	}
	var s string
	if err := json.Unmarshal(spelled, &s); err != nil {
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
