package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// maxAlternatives bounds the alternatives that the braces of a pattern expand to. Each is
// tried on every name.
const maxAlternatives = 512

// globPattern is a parsed pattern of file names.
type globPattern struct {
	base  string      // the literal directory prefix
	fits  globMatcher // matches names below base
	depth int         // how many directories below base it can match, negative for any number
}

// globMatcher is a valid pattern of names relative to a directory.
type globMatcher string

// MatchString reports whether a name matches.
func (m globMatcher) MatchString(name string) bool {
	return doublestar.MatchUnvalidated(string(m), name)
}

func parseGlob(pattern string) (globPattern, error) {
	if err := runner.ValidatePattern(pattern); err != nil {
		return globPattern{}, err
	}
	var p globPattern
	rest := pattern
	special := strings.IndexAny(pattern, `*?[{\`)
	if special < 0 {
		special = len(pattern)
	}
	if i := strings.LastIndexByte(pattern[:special], '/'); i >= 0 {
		p.base, rest = pattern[:max(i, 1)], pattern[i+1:]
	}
	rest = plainClasses(rest)
	if !doublestar.ValidatePattern(rest) {
		return globPattern{}, fmt.Errorf("pattern %.200q: it is not well formed: %w", pattern, dormouse.ErrInvalid)
	}
	if alternatives(rest) > maxAlternatives {
		return globPattern{}, fmt.Errorf("pattern %.200q: its braces stand for more than %d alternatives: %w", pattern, maxAlternatives, dormouse.ErrInvalid)
	}
	p.fits, p.depth = globMatcher(rest), strings.Count(rest, "/")
	if strings.Contains(rest, "**") {
		p.depth = -1
	}
	return p, nil
}

// alternatives is an upper bound of the alternatives that the braces of a pattern expand
// to. It stops counting beyond maxAlternatives.
func alternatives(pattern string) int {
	total, members := 1, 1
	for _, r := range pattern {
		switch r {
		case ',':
			members++
		case '}':
			total, members = total*members, 1
		}
		if total > maxAlternatives {
			return total
		}
	}
	return total
}

// plainClasses escapes the characters that are literal in a character class: a ] that
// comes first in it, and any backslash.
func plainClasses(pattern string) string {
	var out strings.Builder
	for rest := pattern; rest != ""; {
		i := strings.IndexAny(rest, `[\`)
		if i < 0 || i == len(rest)-1 {
			out.WriteString(rest)
			break
		}
		out.WriteString(rest[:i+1])
		open := rest[i] == '['
		rest = rest[i+1:]
		if !open { // what is escaped stays
			out.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if rest[0] == '!' || rest[0] == '^' {
			out.WriteByte(rest[0])
			rest = rest[1:]
		}
		end := strings.IndexByte(rest[min(1, len(rest)):], ']') + 1
		if end < 1 {
			out.WriteString(rest) // it is not closed
			break
		}
		out.WriteString(strings.NewReplacer(`]`, `\]`, `\`, `\\`).Replace(rest[:end]))
		out.WriteByte(']')
		rest = rest[end+1:]
	}
	return out.String()
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
