package inside

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxAlternatives bounds the alternatives that the braces of a pattern expand to. Each is
// tried on every name.
const maxAlternatives = 512

// globReader reads a pattern and expands its braces.
type globReader struct {
	rest string // what is not read yet
	open int    // braces
}

// expand reads up to the end of the pattern, or of the alternative that is being read.
// It returns what that stands for, without braces and with classes as doublestar has them.
func (r *globReader) expand() ([]string, error) {
	all := []string{""}
	for r.rest != "" {
		var next []string
		var err error
		switch c := r.rest[0]; {
		case c == '{':
			next, err = r.braces()
		case r.open > 0 && (c == ',' || c == '}'):
			return all, nil
		case c == '}':
			err = errors.New("a } closes nothing")
		case c == '[':
			next, err = r.class()
		case c == '\\':
			next, err = r.escaped()
		default:
			end := strings.IndexAny(r.rest[1:], `{,}[\`) + 1
			if end == 0 {
				end = len(r.rest)
			}
			next, r.rest = []string{r.rest[:end]}, r.rest[end:]
		}
		if err != nil {
			return nil, err
		}
		if len(all)*len(next) > maxAlternatives {
			return nil, errTooManyAlternatives
		}
		all = concatenate(all, next)
	}
	if r.open > 0 {
		return nil, errors.New("a { is not closed")
	}
	return all, nil
}

var errTooManyAlternatives = fmt.Errorf("its braces stand for more than %d alternatives", maxAlternatives)

// braces reads alternatives up to the brace that closes them.
func (r *globReader) braces() (all []string, err error) {
	r.open++
	for more := true; more; {
		r.rest = r.rest[1:] // the { or a comma
		one, err := r.expand()
		if err != nil {
			return nil, err
		}
		if all = append(all, one...); len(all) > maxAlternatives {
			return nil, errTooManyAlternatives
		}
		more = r.rest[0] == ','
	}
	r.rest = r.rest[1:]
	r.open--
	return all, nil
}

// class reads a class of characters. In it a ] that comes first is one of them, and so is
// any backslash, so all are escaped. A negated class does not match a slash.
func (r *globReader) class() ([]string, error) {
	out := "["
	r.rest = r.rest[1:]
	if strings.HasPrefix(r.rest, "!") || strings.HasPrefix(r.rest, "^") {
		out, r.rest = "[!/", r.rest[1:]
	}
	end := strings.IndexByte(r.rest[min(1, len(r.rest)):], ']') + 1
	if end < 1 {
		return nil, errors.New("a [ is not closed")
	}
	members := []rune(r.rest[:end])
	r.rest = r.rest[end+1:]
	for len(members) > 0 {
		from := members[0]
		out += `\` + string(from)
		members = members[1:]
		if len(members) < 2 || members[0] != '-' {
			continue
		}
		if members[1] < from {
			return nil, fmt.Errorf("the range %c-%c is reversed", from, members[1])
		}
		out += `-\` + string(members[1])
		members = members[2:]
	}
	return []string{out + "]"}, nil
}

// escaped reads a character that stands for itself.
func (r *globReader) escaped() ([]string, error) {
	_, n := utf8.DecodeRuneInString(r.rest[1:])
	if n == 0 {
		return nil, errors.New(`it ends with a \`)
	}
	c := r.rest[:1+n]
	r.rest = r.rest[1+n:]
	return []string{c}, nil
}

// concatenate returns each of the heads with each of the tails.
func concatenate(heads, tails []string) []string {
	all := make([]string, 0, len(heads)*len(tails))
	for _, head := range heads {
		for _, tail := range tails {
			all = append(all, head+tail)
		}
	}
	return all
}
