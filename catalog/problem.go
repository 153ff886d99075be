package catalog

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
)

// problem is why something of the catalog cannot be as it was asked for.
type problem struct {
	kind    error
	code    string
	message string
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.kind }

// ErrorCode is what the Managed Agents API calls the cause; empty if it has no
// name there.
func (p *problem) ErrorCode() string { return p.code }

// invalidf is about a field, which its path leads to.
func invalidf(path, format string, args ...any) error {
	return &problem{kind: dormouse.ErrInvalid, message: path + ": " + fmt.Sprintf(format, args...)}
}

// conflictf is about what somebody else did first.
func conflictf(format string, args ...any) error {
	return &problem{kind: dormouse.ErrConflict, message: fmt.Sprintf(format, args...)}
}

// at is the path of an element of a list.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// length refuses text that has less or more characters than it may.
func length(path, s string, least, most int) error {
	if n := utf8.RuneCountInString(s); n < least || n > most {
		if least == 0 {
			return invalidf(path, "has %d characters; at most %d are taken", n, most)
		}
		return invalidf(path, "has %d characters; it must have %d to %d", n, least, most)
	}
	return nil
}

// short keeps a client's own words from filling the answer.
func short(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func notFound(kind, id string) error {
	return &problem{kind: dormouse.ErrNotFound, message: fmt.Sprintf("there is no %s %q", kind, short(strings.ToValidUTF8(id, "\uFFFD")))}
}

// missing names what a store did not find.
func missing(err error, kind, id string) error {
	if errors.Is(err, dormouse.ErrNotFound) {
		return notFound(kind, id)
	}
	return fmt.Errorf("%s %s: %w", kind, id, err)
}
