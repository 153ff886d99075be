package inside

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// grepPattern is a compiled pattern of lines.
type grepPattern struct {
	fits *regexp.Regexp
	// needs is a literal that every matching line contains, empty if there is none. It is
	// searched first, because that is much faster.
	needs []byte
}

func parseGrep(pattern string) (grepPattern, error) {
	if err := runner.ValidatePattern(pattern); err != nil {
		return grepPattern{}, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return grepPattern{}, fmt.Errorf("pattern %.200q: %w: %w", pattern, err, dormouse.ErrInvalid)
	}
	p := grepPattern{fits: re}
	if parsed, err := syntax.Parse(pattern, syntax.Perl); err == nil {
		p.needs = []byte(needs(parsed))
	}
	return p, nil
}

// needs returns the longest literal that every match of an expression contains.
func needs(re *syntax.Regexp) (text string) {
	switch re.Op { //nolint:exhaustive // the rest may fit without any
	case syntax.OpLiteral:
		s := string(re.Rune)
		if re.Flags&syntax.FoldCase == 0 && !strings.ContainsRune(s, utf8.RuneError) { // which is also what is no text
			return s
		}
	case syntax.OpCapture, syntax.OpPlus:
		return needs(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return needs(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if s := needs(sub); len(s) > len(text) {
				text = s
			}
		}
	}
	return text
}
