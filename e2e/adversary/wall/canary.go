//go:build linux

package wall

import (
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// canary is a random text that is only where it was put. Whatever shows it, or half of
// it, has read it there; texts may be cut off.
type canary struct {
	name string // where it was put
	text string
}

func newCanary(name string) canary {
	const enough = 32
	return canary{name, strings.ToLower(rand.Text() + rand.Text())[:enough]}
}

// page is a text in which the canary is wherever one looks.
func (c canary) page() []byte { return bytes.Repeat([]byte(c.text+"\n"), 128) }

// encoding is a way to encode a text.
type encoding struct {
	name   string
	encode func(s string) []string
}

// encodings are eight ways in which a canary is looked for. What three or five bytes
// at a time become depends on what stands before.
func encodings() []encoding {
	one := func(f func(string) string) func(string) []string {
		return func(s string) []string { return []string{f(s)} }
	}
	each := func(format string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				fmt.Fprintf(&b, format, s[i])
			}
			return b.String()
		}
	}
	return []encoding{
		{"plain", one(func(s string) string { return s })},
		{"reversed", one(func(s string) string {
			b := []byte(s)
			slices.Reverse(b)
			return string(b)
		})},
		{"hex", func(s string) []string {
			h := hex.EncodeToString([]byte(s))
			return []string{h, strings.ToUpper(h)}
		}},
		{"base64", func(s string) []string {
			return append(aligned(s, 3, 4, base64.RawStdEncoding.EncodeToString), aligned(s, 3, 4, base64.RawURLEncoding.EncodeToString)...)
		}},
		{"base32", func(s string) []string {
			return aligned(s, 5, 8, base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString)
		}},
		{"percent", one(each("%%%02x"))},
		{"escaped", one(each(`\u%04x`))},
		{"utf-16", one(func(s string) string {
			var b []byte
			for _, u := range utf16.Encode([]rune(s)) {
				b = append(b, byte(u), byte(u>>8))
			}
			return string(b)
		})},
	}
}

// aligned encodes s, in times out of groups of in bytes, after each number of bytes
// that it may follow, without what the neighbours have a share in.
func aligned(s string, in, out int, encode func([]byte) string) (all []string) {
	for before := range in {
		whole := encode([]byte(strings.Repeat("\x00", before) + s))
		from := 0
		if before > 0 {
			from = out
		}
		all = append(all, whole[from:(before+len(s))/in*out])
	}
	return all
}

// needles are what a canary is known by, and their encodings.
func (c canary) needles() map[string]string {
	found := make(map[string]string)
	for _, half := range []string{c.text[:len(c.text)/2], c.text[len(c.text)/2:]} {
		for _, e := range encodings() {
			for _, n := range e.encode(half) {
				found[n] = e.name
			}
		}
	}
	return found
}

// finder looks for canaries.
type finder struct {
	canaries []canary
	needles  []map[string]string
}

func newFinder(all ...canary) *finder {
	f := &finder{canaries: all}
	for _, c := range all {
		f.needles = append(f.needles, c.needles())
	}
	return f
}

// in says which canaries are in b, and in which encoding.
func (f *finder) in(b []byte) (found []string) {
	if f == nil {
		return nil
	}
	for i, c := range f.canaries {
		for needle, how := range f.needles[i] {
			if bytes.Contains(b, []byte(needle)) {
				found = append(found, fmt.Sprintf("%s, %s", c.name, how))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
