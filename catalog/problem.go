package catalog

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
)

// problem is the error of a request that the catalog refuses.
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

// invalidf is the error of the field at a path.
func invalidf(path, format string, args ...any) error {
	return &problem{kind: dormouse.ErrInvalid, message: path + ": " + fmt.Sprintf(format, args...)}
}

// conflictf is the error of a request that conflicts with an earlier one.
func conflictf(format string, args ...any) error {
	return &problem{kind: dormouse.ErrConflict, message: fmt.Sprintf(format, args...)}
}

// at is the path of an element of a list.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// checkLength refuses text with too few or too many characters.
func checkLength(path, s string, least, most int) error {
	if n := utf8.RuneCountInString(s); n < least || n > most {
		if least == 0 {
			return invalidf(path, "has %d characters; at most %d are taken", n, most)
		}
		return invalidf(path, "has %d characters; it must have %d to %d", n, least, most)
	}
	return nil
}

// short truncates text of a client that an answer repeats.
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

// storeError adds to an error of the store what was looked for.
func storeError(err error, kind, id string) error {
	if errors.Is(err, dormouse.ErrNotFound) {
		return notFound(kind, id)
	}
	return fmt.Errorf("%s %s: %w", kind, id, err)
}
