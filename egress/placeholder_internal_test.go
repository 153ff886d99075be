package egress

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestPlaceholdersAreSwappedInHeadersAndInsideBasic(t *testing.T) {
	basicOf := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	swaps := []swap{{"ph_one", "first ph_two"}, {"ph_two", "second"}}
	for _, c := range []struct{ name, value, want string }{
		{"Authorization", "Bearer ph_one", "Bearer first ph_two"}, // what is put in is not looked at again
		{"Authorization", basicOf("x:ph_two"), basicOf("x:second")},
		{"Authorization", "basic " + base64.RawStdEncoding.EncodeToString([]byte("ph_two:")), basicOf("second:")},
		{"Authorization", basicOf("x:other"), basicOf("x:other")},
		{"Authorization", "Basic ph_two", "Basic second"}, // it is no base64
		{"Private-Token", "ph_twoph_one", "secondfirst ph_two"},
		{"X-Other", basicOf("x:ph_two"), basicOf("x:ph_two")},
		{"X-Other", "ph_tw", "ph_tw"},
	} {
		h := http.Header{c.name: {"a", c.value}}
		swapHeader(h, swaps)
		if diff := cmp.Diff(http.Header{c.name: {"a", c.want}}, h); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if has := holds(http.Header{c.name: {c.value}}, "ph_one") || holds(http.Header{c.name: {c.value}}, "ph_two"); has != (c.value != c.want) {
			t.Errorf("%q: %v", c.value, has)
		}
	}
	if holds(http.Header{"A": {"b"}}, "") {
		t.Error("no placeholder was found")
	}
}

func TestASecretIsWrittenAsItsBodyIs(t *testing.T) {
	const value = `a"b&c=\`
	for kind, want := range map[string]string{
		"application/json; charset=utf-8":   `a\"b&c=\\`,
		"application/vnd.api+json":          `a\"b&c=\\`,
		"application/x-www-form-urlencoded": "a%22b%26c%3D%5C",
		"text/plain":                        value,
		"":                                  value,
	} {
		if got := inBody(kind, value); got != want {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func TestBodiesAreLookedThroughAsFarAsTheLimit(t *testing.T) {
	swaps := []swap{{"ph_one", "X"}}
	filler := strings.Repeat("-", maxSwapped-len("ph_one"))
	got, err := io.ReadAll(newSwapper(strings.NewReader(filler+"ph_one"+"ph_one"), swaps))
	if err != nil || string(got) != filler+"X"+"ph_one" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWhatCannotBecomeAPlaceholderIsNotHeldBack(t *testing.T) {
	from, feed := io.Pipe()
	s := newSwapper(from, []swap{{"ph_one", "X"}})
	b := make([]byte, 100)
	for _, c := range []struct{ sent, want string }{{"hello ph", "hello "}, {"p", "php"}, {"ph_one!", "X!"}} {
		go func() { _, _ = io.WriteString(feed, c.sent) }()
		if c.sent == "p" { // "ph" and then "p", of which the last may begin another
			c.want = "ph"
		}
		if c.sent == "ph_one!" {
			c.want = "pX!"
		}
		n, err := s.Read(b)
		if err != nil || string(b[:n]) != c.want {
			t.Errorf("%q: %q, %v", c.sent, b[:n], err)
		}
	}
}

func TestABrokenBodyIsNotAWholeOne(t *testing.T) {
	_, err := io.ReadAll(newSwapper(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("hello"))), []swap{{"ph_one", "X"}}))
	if err == nil {
		t.Error("a body that broke off was read to its end")
	}
}

// FuzzPlaceholderSwap holds the swapper against strings.Replacer.
func FuzzPlaceholderSwap(f *testing.F) {
	f.Add("ph_one", "secret", "a ph_one b ph_on ph_oneph_one", uint8(1))
	f.Add("aab", "aaab", "aaaabaab", uint8(2))
	f.Add("\x00", "", "a\x00b", uint8(0))
	f.Fuzz(func(t *testing.T, placeholder, value, body string, step uint8) {
		if placeholder == "" || len(placeholder) > 256 {
			return
		}
		swaps := []swap{{placeholder, value}, {"ph_other", "other"}}
		if strings.Contains("ph_other", placeholder) || strings.Contains(placeholder, "ph_other") {
			swaps = swaps[:1]
		}
		got, err := io.ReadAll(newSwapper(&stepwise{[]byte(body), int(step)}, swaps))
		if err != nil {
			t.Fatal(err)
		}
		if want := swapText(body, swaps); string(got) != want {
			t.Fatalf("%q for %q in %q:\n got %q\nwant %q", value, placeholder, body, got, want)
		}
		h := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(body))}, "X": {body}}
		held := holds(h, placeholder)
		swapHeader(h, swaps[:1])
		if held != strings.Contains(body, placeholder) {
			t.Fatalf("%q in %q: %v", placeholder, body, held)
		}
		plain, ok := basic("Authorization", h.Get("Authorization"))
		if want := strings.ReplaceAll(body, placeholder, value); !ok || plain != want || h.Get("X") != want {
			t.Fatalf("%q and %q, want %q", plain, h.Get("X"), want)
		}
	})
}

func BenchmarkSwapper(b *testing.B) {
	body := bytes.Repeat([]byte("some text that has no placeholder in it\n"), 1<<15)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		_, _ = io.Copy(io.Discard, newSwapper(bytes.NewReader(body), []swap{{"dormouse_placeholder_1", "value"}}))
	}
}
