package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// hard is a secret that looks different in every form.
const hard = `s3cr&t/+"ключ"<\>?~`

func TestASecretIsMaskedInWhateverFormItComesBack(t *testing.T) { // E64
	r := newRedactor([]string{hard})
	js, _ := json.Marshal(hard)
	quoted := strings.Trim(string(js), `"`)
	for name, form := range map[string]string{
		"raw":             hard,
		"query":           url.QueryEscape(hard),
		"query, lower":    lowerEscapes(url.QueryEscape(hard)),
		"path":            url.PathEscape(hard),
		"percent":         percent(hard),
		"json":            quoted,
		"json, not html":  inJSON(hard, false),
		"json, slashes":   strings.ReplaceAll(inJSON(hard, false), "/", `\/`),
		"hex":             hex.EncodeToString([]byte(hard)),
		"hex, upper":      strings.ToUpper(hex.EncodeToString([]byte(hard))),
		"html":            "s3cr&amp;t/+&#34;ключ&#34;&lt;\\&gt;?~",
		"base64":          base64.StdEncoding.EncodeToString([]byte(hard)),
		"base64, raw":     base64.RawStdEncoding.EncodeToString([]byte(hard)),
		"base64, url":     base64.URLEncoding.EncodeToString([]byte(hard)),
		"basic, 0":        base64.StdEncoding.EncodeToString([]byte("ab:" + hard)),
		"basic, 1":        base64.StdEncoding.EncodeToString([]byte("abc:" + hard)),
		"basic, 2":        base64.StdEncoding.EncodeToString([]byte("abcd:" + hard)),
		"basic, followed": base64.StdEncoding.EncodeToString([]byte("abcd:" + hard + ":rest")),
	} {
		got := r.text("before " + form + " after")
		if len(got) != len("before "+form+" after") || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q", name, got)
		}
		// In base64 there is more around the secret, and a byte at each end of it belongs to both.
		const around = 16
		if strings.Count(got, string(mask)) < len(form)-around {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNamesOfHeadersAreMaskedToo(t *testing.T) {
	r := newRedactor([]string{"Hunter2Hunter2"})
	h := http.Header{"X-Hunter2hunter2": {"1"}, "X-Echo": {"a Hunter2Hunter2 b", "c"}}
	r.header(h)
	if len(h) != 1 || h["X-Echo"][0] != "a ************** b" || h["X-Echo"][1] != "c" {
		t.Errorf("%v", h)
	}
}

func TestOnlyWhatMayBeASecretIsHeldBack(t *testing.T) {
	r := newRedactor([]string{"0123456789abcdef"})
	from, feed := io.Pipe()
	d := r.reader(from, false)
	read := func() string {
		b := make([]byte, 100)
		n, err := d.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	go func() { _, _ = io.WriteString(feed, "data: 01234\n\n"); _, _ = io.WriteString(feed, "x0123") }()
	if got := read(); got != "data: 01234\n\n" {
		t.Errorf("%q", got)
	}
	if got := read(); got != "x" {
		t.Errorf("%q", got)
	}
	go func() { _, _ = io.WriteString(feed, "456789abcdefy") }()
	if got := read(); got != strings.Repeat("*", 16)+"y" {
		t.Errorf("%q", got)
	}
}

func TestAMessageThatWaitsForAnAnswerIsNotHeldBack(t *testing.T) {
	r := newRedactor([]string{"0123456789abcdef"})
	from, feed := io.Pipe()
	d := r.reader(from, true)
	b := make([]byte, 100)
	for _, c := range []struct{ sent, want string }{
		{"ping0", "ping0"},                 // may begin a secret
		{"123", "123"},                     // and goes on as one
		{"456789abcdef.", "************."}, // what is left of it is masked
		{"01234", ""}, {"x", "01234x"},     // more than that is held back
		{"0123", "0123"}, {"012345678", ""}, //
		{"9abcdef", strings.Repeat("*", 16)}, // a whole one after a part of one
		{"a0123456789abcdef", "a****************"},
	} {
		go func() { _, _ = io.WriteString(feed, c.sent) }()
		if c.want == "" {
			d.fill()
			if d.begin != d.ready {
				t.Errorf("%q: %q was let go", c.sent, d.buf[d.begin:d.ready])
			}
			continue
		}
		n, err := d.Read(b)
		if err != nil || string(b[:n]) != c.want {
			t.Errorf("%q: %q, %v; want %q", c.sent, b[:n], err, c.want)
		}
	}
}

func TestABrokenStreamDoesNotGiveOutWhatWasHeldBack(t *testing.T) {
	r := newRedactor([]string{"0123456789abcdef"})
	broken := errors.New("broken")
	got, err := io.ReadAll(r.reader(io.MultiReader(strings.NewReader("x0123456789abcde"), iotest.ErrReader(broken)), false))
	if !errors.Is(err, broken) || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheLongestSecretIsMaskedInConstantMemory(t *testing.T) {
	secret := strings.Repeat("kA/", 4096/3)
	r := newRedactor([]string{secret})
	if n := len(r.nodes); n > 64<<10 {
		t.Errorf("%d nodes", n)
	}
	const times = 300
	form := base64.StdEncoding.EncodeToString([]byte("a:" + secret))
	d := r.reader(strings.NewReader(strings.Repeat(form+"\n"+secret+"\n", times)), false)
	masked := 0
	b := make([]byte, 4096)
	for {
		n, err := d.Read(b)
		masked += bytes.Count(b[:n], []byte{mask})
		if err != nil {
			break
		}
	}
	if want := times * (len(secret) + len(form) - 8); masked < want {
		t.Errorf("%d bytes of %d are masked", masked, want)
	}
	if len(d.buf) > bufferSize+r.longest {
		t.Errorf("the buffer has %d bytes", len(d.buf))
	}
}

func TestAShortSecretIsNotLookedForInForms(t *testing.T) {
	if newRedactor([]string{"a"}) != nil {
		t.Error("one letter is looked for")
	}
	var none *redactor
	none.header(http.Header{"A": {"b"}})
	if none.text("a") != "a" {
		t.Error("nothing was looked for and something found")
	}
}

// naive masks every occurrence of every pattern in a whole text.
func naive(body []byte, patterns []string) []byte {
	out := bytes.Clone(body)
	for _, p := range patterns {
		for i := 0; i+len(p) <= len(body); i++ {
			if string(body[i:i+len(p)]) == p {
				blot(out, i+len(p), len(p))
			}
		}
	}
	return out
}

// FuzzRedactor holds the redactor against one that has the whole body before it.
func FuzzRedactor(f *testing.F) {
	f.Add("abcdabcd", "abcabcdabcdabcdxabcd", uint8(1))
	f.Add("aaaa", "aaaaaaaaaaa", uint8(3))
	f.Add("\xff", "\xff", uint8(0)) // short, and long in JSON
	f.Add(hard, "x"+hard+base64.StdEncoding.EncodeToString([]byte("u:"+hard)), uint8(7))
	f.Fuzz(func(t *testing.T, secret, body string, step uint8) {
		if len(secret) > 64 || len(body) > 4096 {
			return
		}
		// The body holds forms of the secret where it has a mark.
		p := patterns([]string{secret})
		for i, form := range p {
			body = strings.Replace(body, "\x01", form[:max(len(form)-i%3, 0)], 1)
		}
		r := newRedactor([]string{secret})
		if r == nil {
			return
		}
		got, err := io.ReadAll(r.reader(&stepwise{[]byte(body), int(step)}, false))
		if err != nil {
			t.Fatal(err)
		}
		if want := naive([]byte(body), p); !bytes.Equal(got, want) {
			t.Fatalf("secret %q, body %q, steps of %d:\n got %q\nwant %q", secret, body, step, got, want)
		}
		// One that does not hold back everything still masks all but the first bytes.
		eager, err := io.ReadAll(r.reader(&stepwise{[]byte(body), int(step)}, true))
		if err != nil || len(eager) != len(body) {
			t.Fatalf("%d bytes, %v", len(eager), err)
		}
		if strings.Contains(string(eager), secret) && strings.Trim(secret, string(mask)) != "" {
			t.Fatalf("%q shows %q", eager, secret)
		}
	})
}

// stepwise gives out a few bytes at a time.
type stepwise struct {
	left []byte
	step int
}

func (s *stepwise) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), s.step%7+1)], s.left)
	s.left = s.left[n:]
	return n, nil
}

func BenchmarkRedactor(b *testing.B) {
	r := newRedactor([]string{"ghp_0123456789abcdefghijABCDEFGHIJ012345"})
	body := bytes.Repeat([]byte(`{"id": 12345, "name": "a repository", "url": "https://api.example/repos/1"},`+"\n"), 1<<14)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{r.reader(bytes.NewReader(body), false)})
	}
}
