package inside

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
)

func FuzzGlobPattern(f *testing.F) {
	f.Add("**/*.go", "a/b.go")
	f.Add("src/{a,b/**}/[!x-z]?.[]ch]", "src/a/bc.c")
	f.Add(`\*\`, "*")
	f.Add("/abs/*", "x")
	f.Add("[a-]", "-")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := parseGlob(pattern)
		if err != nil {
			return
		}
		fits := p.fits.MatchString(name)
		if fits && p.depth >= 0 && strings.Count(name, "/") > p.depth {
			t.Errorf("%q fits %q, which is deeper than %d", pattern, name, p.depth)
		}
		// What package path knows too means the same there.
		if strings.ContainsAny(pattern, "{}\\[") || strings.Contains(pattern, "**") || p.base != "" || !utf8.ValidString(name) {
			return
		}
		if want, err := path.Match(pattern, name); err == nil && want != fits {
			t.Errorf("%q fits %q: %v, want %v", pattern, name, fits, want)
		}
	})
}

// Each pair of braces doubles what is tried on every name.
func TestPatternsOfTooManyAlternativesAreRefused(t *testing.T) {
	if _, err := parseGlob(strings.Repeat("{a,b}", 9)); err != nil {
		t.Error(err)
	}
	if _, err := parseGlob(strings.Repeat("{a,b}", 40)); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func FuzzGrepPattern(f *testing.F) {
	f.Add("func .*Foo", "func (x) Foo()")
	f.Add("(?i)abc|abd", "ABD")
	f.Add("(a+b){2,3}x?", "aabab")
	f.Add("\uFFFD", "\xff")
	f.Fuzz(func(t *testing.T, pattern, line string) {
		p, err := parseGrep(pattern)
		if err != nil {
			return
		}
		if p.fits.MatchString(line) && !strings.Contains(line, string(p.needs)) {
			t.Errorf("%q fits %q, which has no %q", pattern, line, p.needs)
		}
	})
}
