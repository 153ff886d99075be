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

// grepPattern is a pattern of lines, ready to be used.
type grepPattern struct {
	fits *regexp.Regexp
	// needs is a text that every line has that fits, empty if there is none. It is
	// found much faster.
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

// needs is the longest text that is in everything an expression fits.
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
