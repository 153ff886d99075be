package inside

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

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
		if strings.ContainsAny(pattern, "{}\\[") || strings.Contains(pattern, "**") || p.base != "" || !fs.ValidPath(name) {
			return
		}
		if want, err := path.Match(pattern, name); err == nil && want != fits {
			t.Errorf("%q fits %q: %v, want %v", pattern, name, fits, want)
		}
	})
}

// What a pattern means does not depend on the library that matches it.
func TestGlobPatternsMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		// A star may match nothing, whatever follows it.
		{"Makefile*{.am,}", "Makefile", true},
		{"log*{,.gz}", "log", true},
		{"*.log*{,.gz}", "a.log", true},
		{"*.log*{,.gz}", "a.log.1.gz", true},
		{"a{b,{c,d}e}f", "adef", true},
		{"a{b,{c,d}e}f", "ade", false},
		{"{a,b}/{c,d}", "b/c", true},
		{`{a\,b,[,}]}`, "a,b", true},
		{`{a\,b,[,}]}`, "}", true},
		{"a,b", "a,b", true},
		// Two stars that are a whole name match any directories, more than two as well.
		{"**", "a/b", true},
		{"***", "a/b", true},
		{"***/b", "b", true},
		{"a**", "a/b", false},
		// They match a name below those directories, not what is before them.
		{"*/**", "top.txt", false},
		{"*/**", "a/top.txt", true},
		{"cmd*/**", "cmd.txt", false},
		{"cmd{/**,.go}", "cmd", false},
		{"cmd{/**,.go}", "cmd/a/b", true},
		{"cmd/**/", "cmd", false},
		{"a/b**/", "a/b", false},
		// A negated class is one character of a name.
		{"**/pkg[!_]x", "pkg/x", false},
		{"**/pkg[^_]x", "a/pkg-x", true},
		{"[!-a]", "b", true},
		{"[!-a]", "-", false},
		{"[!]a]", "]", false},
		{`[\]`, `\`, true},
		{"[]-a]", "^", true},
		{"[+--]", ",", true},
	} {
		p, err := parseGlob(c.pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		rel := strings.TrimPrefix(c.name, p.base+"/")
		if got := p.fits.MatchString(rel); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

func TestMalformedGlobPatternsAreRefused(t *testing.T) {
	for _, pattern := range []string{"[b-a]", "[!b-a]", "[x-z9-0]", "[a--]", "[", "[]", "[!]", "[!", "{a", "{a,{b}", "a}", "{a}}", `a\`} {
		if _, err := parseGlob(pattern); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%q: got %v", pattern, err)
		}
	}
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
