package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// globPattern is a parsed pattern of file names.
type globPattern struct {
	base  string      // the literal directory prefix
	fits  globMatcher // matches names below base
	depth int         // how many directories below base it can match, negative for any number
}

// globMatcher is a valid pattern of names relative to a directory: its alternatives, as
// doublestar has them and without braces.
type globMatcher []string

// MatchString reports whether a name matches.
func (m globMatcher) MatchString(name string) bool {
	return slices.ContainsFunc(m, func(one string) bool { return doublestar.MatchUnvalidated(one, name) })
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
	all, err := (&globReader{rest: rest}).expand()
	if err != nil {
		return globPattern{}, fmt.Errorf("pattern %.200q: %w: %w", pattern, err, dormouse.ErrInvalid)
	}
	p.depth = strings.Count(rest, "/")
	for _, one := range all {
		if strings.HasSuffix(one, "/") {
			continue // no name of a file ends so
		}
		p.fits = append(p.fits, plainStars(one))
		if strings.Contains(one, "**") {
			p.depth = -1
		}
	}
	return p, nil
}

// plainStars rewrites stars for doublestar. It takes more than two for one, and its /**
// at the end matches nothing too, and so a file that has the name of the directory.
func plainStars(pattern string) string {
	for strings.Contains(pattern, "***") {
		pattern = strings.ReplaceAll(pattern, "***", "**")
	}
	if strings.HasSuffix(pattern, "/**") {
		pattern += "/*"
	}
	return pattern
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
