package runner

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
)

// Validate refuses a call that no runner could carry out.
func (c Call) Validate() error {
	if err := c.Op.Validate(); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	var ok bool
	switch c.Kind {
	case dormouse.OpExec, dormouse.OpTask:
		ok = c.Exec != nil
	case dormouse.OpWrite:
		ok = c.Write != nil || c.Edit != nil
	case dormouse.OpRead:
		ok = c.Read != nil || c.Glob != nil || c.Grep != nil
	case dormouse.OpModel, dormouse.OpCustom, dormouse.OpApproval, dormouse.OpQuestion, dormouse.OpSelf, dormouse.OpMessage, dormouse.OpLook,
		dormouse.OpSnapshot:
	}
	if !ok || c.parts() != 1 {
		return fmt.Errorf("call %s: what it asks for does not match its kind %.40q: %w", c.Op, c.Kind, dormouse.ErrInvalid)
	}
	if c.Exec != nil {
		return c.Exec.validate()
	}
	return nil
}

func (c Call) parts() (n int) {
	for _, set := range []bool{c.Exec != nil, c.Write != nil, c.Edit != nil, c.Read != nil, c.Glob != nil, c.Grep != nil} {
		if set {
			n++
		}
	}
	return n
}

// Record is the call as it is kept in the journal, without the contents of files.
func (c Call) Record() Call {
	if c.Write != nil {
		c.Write = &Write{Path: c.Write.Path}
	}
	if c.Edit != nil {
		c.Edit = &Edit{Path: c.Edit.Path}
	}
	return c
}

// ValidatePattern checks a pattern of a glob or a grep without compiling it. Only the
// runner compiles it, because that may take much memory.
func ValidatePattern(pattern string) error {
	switch {
	case pattern == "":
		return fmt.Errorf("pattern is empty: %w", dormouse.ErrInvalid)
	case len(pattern) > MaxPattern:
		return fmt.Errorf("pattern is longer than %d bytes: %w", MaxPattern, dormouse.ErrTooLarge)
	case !utf8.ValidString(pattern) || strings.IndexByte(pattern, 0) >= 0:
		return fmt.Errorf("pattern is no text: %w", dormouse.ErrInvalid)
	}
	return nil
}
