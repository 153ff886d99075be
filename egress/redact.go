package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

const (
	// mask stands where a byte of a secret was. What is masked keeps its length, so that
	// lengths, ranges and frames around it stay true.
	mask = '*'
	// minPattern is the length of the shortest secret, and of the shortest form of one, that
	// is looked for. A shorter one would be found everywhere.
	minPattern = 4
	// open is how many bytes of what may become a secret are let go of where an answer is
	// expected to what was said so far; of a short secret, as many as fit in openShare of it.
	open      = 4
	openShare = 4
)

// patterns are the forms in which a secret may come back.
func patterns(secrets []string) []string {
	var found []string
	for _, s := range secrets {
		if len(s) < minPattern {
			continue
		}
		found = append(found, s, html.EscapeString(s), hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))))
		for _, escaped := range []string{url.QueryEscape(s), url.PathEscape(s), percent(s)} {
			found = append(found, escaped, lowerEscapes(escaped))
		}
		found = append(found, inJSON(s, true), inJSON(s, false), strings.ReplaceAll(inJSON(s, false), "/", `\/`))
		for before := range 3 {
			within := inBase64(s, before)
			found = append(found, within, strings.NewReplacer("+", "-", "/", "_").Replace(within))
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return slices.DeleteFunc(found, func(p string) bool { return len(p) < minPattern })
}

// inBase64 is what shows of a secret in base64 whatever is before and behind it, as in
// Basic, where a name is before it. Only the number of bytes before it counts, by threes.
func inBase64(s string, before int) string {
	const bitsOfByte, bitsOfChar = 8, 6
	all := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), s...))
	first := (before*bitsOfByte + bitsOfChar - 1) / bitsOfChar
	last := (before + len(s)) * bitsOfByte / bitsOfChar
	return all[min(first, last):last]
}

func inJSON(s string, forHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(forHTML)
	if e.Encode(s) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// percent escapes everything but letters and digits.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{c})))
	}
	return b.String()
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:i+3], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

// redactor masks secrets in what comes back.
type redactor struct {
	*matcher
	folded []string // the patterns in lower case
}

// newRedactor returns nil if there is nothing to look for.
func newRedactor(secrets []string) *redactor {
	p := patterns(secrets)
	if len(p) == 0 {
		return nil
	}
	r := &redactor{matcher: newMatcher(p)}
	for _, p := range p {
		r.folded = append(r.folded, strings.ToLower(p))
	}
	return r
}

// maxRedactors bounds the redactors that a session keeps.
const maxRedactors = 16

// redactors are those that a session has used. To make one takes longer than to search an
// answer.
type redactors struct {
	mu   sync.Mutex
	made map[string]*redactor // guarded by mu; by the secrets
}

func (r *redactors) of(secrets []string) *redactor {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.Join(secrets, "\n") // which no secret has
	made, ok := r.made[key]
	if !ok {
		if len(r.made) >= maxRedactors || r.made == nil {
			r.made = make(map[string]*redactor)
		}
		made = newRedactor(secrets)
		r.made[key] = made
	}
	return made
}

// text masks secrets in a text that is whole.
func (r *redactor) text(s string) string {
	if r == nil || len(s) < r.shortest {
		return s
	}
	b := []byte(s)
	hit := false
	r.scan(0, b, func(end, length int) {
		hit = true
		blot(b, end, length)
	})
	if !hit {
		return s
	}
	return string(b)
}

// header masks secrets in a header. A name that has one goes altogether.
func (r *redactor) header(h http.Header) {
	if r == nil {
		return
	}
	for name, values := range h {
		if r.named(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = r.text(v)
		}
	}
}

// named reports whether a name has a secret. Names come in another case than they were
// written in.
func (r *redactor) named(name string) bool {
	folded := strings.ToLower(name)
	return slices.ContainsFunc(r.folded, func(p string) bool { return strings.Contains(folded, p) })
}

// blot masks what ends at end.
func blot(b []byte, end, length int) {
	for i := max(end-length, 0); i < end; i++ {
		b[i] = mask
	}
}

// reader masks secrets in a stream. It holds back only what may be the beginning of a
// secret, and if that never goes on, until the end.
func (r *redactor) reader(from io.Reader, eager bool) *redacted {
	n := 0
	if eager {
		n = min(open, r.shortest/openShare)
	}
	return &redacted{r: r, from: from, open: n}
}

// redacted is a stream without secrets.
type redacted struct {
	r    *redactor
	from io.Reader
	open int // how deep in a pattern bytes are still let go

	buf   []byte
	begin int // of what is not given out yet
	ready int // the end of what may be given out
	end   int // of what was read
	state int
	err   error
}

func (d *redacted) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for d.begin == d.ready {
		if d.err != nil {
			return 0, d.err
		}
		d.fill()
	}
	n := copy(b, d.buf[d.begin:d.ready])
	d.begin += n
	return n, nil
}

func (d *redacted) fill() {
	if d.buf == nil {
		d.buf = make([]byte, bufferSize+d.r.longest)
	}
	d.end = copy(d.buf, d.buf[d.begin:d.end])
	d.begin, d.ready = 0, 0
	n, err := d.from.Read(d.buf[d.end:])
	at := d.end
	masked, until := 0, 0 // the last stretch of what was masked
	d.state = d.r.scan(d.state, d.buf[at:at+n], func(end, length int) {
		blot(d.buf, at+end, length)
		from := at + end - length
		if from <= until {
			from = min(from, masked)
		}
		masked, until = from, at+end
	})
	d.end += n
	d.err = err
	depth := d.r.nodes[d.state].depth
	if errors.Is(err, io.EOF) || err == nil && depth <= d.open {
		d.ready = d.end
		return
	}
	d.ready = max(d.end-depth, 0)
	if masked <= d.ready {
		d.ready = max(d.ready, until) // what is masked already need not wait
	}
}
