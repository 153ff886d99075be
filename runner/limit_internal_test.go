package runner

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzPlain(f *testing.F) {
	f.Add("perl\x00-e\x00sleep\x00")
	f.Add(strings.Repeat("ä", maxDetail))
	f.Add("\x1b[31m\r\nlevel=ERROR")
	f.Fuzz(func(t *testing.T, words string) {
		got := SingleLine(words)
		if len(got) > maxDetail || !utf8.ValidString(got) || strings.ContainsFunc(got, func(c rune) bool { return unicode.IsControl(c) }) {
			t.Errorf("%q became %q", words, got)
		}
	})
}
