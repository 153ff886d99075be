package egress

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// maxSwapped is how much of a body is looked through for placeholders.
	maxSwapped = 8 << 20
	// maxSwaps is how many bodies of a session are in memory for that at once.
	maxSwaps = 4
)

// swap is a placeholder and what takes its place.
type swap struct{ placeholder, value string }

// swapText swaps placeholders in a text, in one go: a value that holds another placeholder
// stays as it is.
func swapText(s string, swaps []swap) string {
	var pairs []string
	for _, p := range swaps {
		pairs = append(pairs, p.placeholder, p.value)
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// swapHeader swaps placeholders in the values of a header, also inside Basic.
func swapHeader(h http.Header, swaps []swap) {
	if len(swaps) == 0 {
		return
	}
	for name, values := range h {
		for i, v := range values {
			if plain, ok := basic(name, v); ok {
				if swapped := swapText(plain, swaps); swapped != plain {
					values[i] = "Basic " + base64.StdEncoding.EncodeToString([]byte(swapped))
				}
				continue
			}
			values[i] = swapText(v, swaps)
		}
	}
}

// holds reports whether a header has the placeholder, plain or inside Basic.
func holds(h http.Header, placeholder string) bool {
	if placeholder == "" {
		return false
	}
	for name, values := range h {
		for _, v := range values {
			if plain, ok := basic(name, v); ok {
				v = plain
			}
			if strings.Contains(v, placeholder) {
				return true
			}
		}
	}
	return false
}

// basic reads user:password out of an Authorization.
func basic(name, value string) (string, bool) {
	if name != "Authorization" {
		return "", false
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(value), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false
	}
	rest = strings.TrimRight(strings.TrimSpace(rest), "=")
	plain, err := base64.RawStdEncoding.DecodeString(rest)
	return string(plain), err == nil
}

// inBody is the value of a swap as it is written in a body of this kind.
func inBody(contentType, value string) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "application/x-ndjson":
		return inJSON(value, false)
	case kind == "application/x-www-form-urlencoded":
		return url.QueryEscape(value)
	}
	return value
}

// swapper swaps placeholders in a stream, as far as maxSwapped.
type swapper struct {
	from  io.Reader
	swaps []swap
	left  int64 // how much more is looked through

	in  []byte // read and not looked through
	out []byte // to be given out
	err error
}

func newSwapper(from io.Reader, swaps []swap) *swapper {
	return &swapper{from: from, swaps: swaps, left: maxSwapped}
}

func (s *swapper) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(s.out) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.left <= 0 && len(s.in) == 0:
			return s.from.Read(b)
		}
		s.fill()
	}
	n := copy(b, s.out)
	s.out = s.out[n:]
	return n, nil
}

func (s *swapper) fill() {
	s.out = s.out[:0]
	if s.left > 0 {
		held := len(s.in)
		s.in = slices.Grow(s.in, bufferSize)
		n, err := s.from.Read(s.in[held : held+int(min(bufferSize, s.left))])
		s.in, s.err = s.in[:held+n], err
		s.left -= int64(n)
	}
	for {
		at, found := s.find()
		if at < 0 {
			break
		}
		s.out = append(append(s.out, s.in[:at]...), found.value...)
		s.in = s.in[at+len(found.placeholder):]
	}
	hold := 0
	if s.err == nil && s.left > 0 {
		hold = s.begun()
	}
	end := len(s.in) - hold
	s.out = append(s.out, s.in[:end]...)
	s.in = append([]byte(nil), s.in[end:]...)
}

// find is where the first placeholder is, or -1.
func (s *swapper) find() (int, swap) {
	at, found := -1, swap{}
	for _, p := range s.swaps {
		if i := bytes.Index(s.in, []byte(p.placeholder)); i >= 0 && (at < 0 || i < at) {
			at, found = i, p
		}
	}
	return at, found
}

// begun is how much at the end may be the beginning of a placeholder.
func (s *swapper) begun() int {
	longest := 0
	for _, p := range s.swaps {
		for n := min(len(p.placeholder)-1, len(s.in)); n > longest; n-- {
			if bytes.HasSuffix(s.in, []byte(p.placeholder[:n])) {
				longest = n
			}
		}
	}
	return longest
}
