package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// helloOf is what a client sends first.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var sent bytes.Buffer
	_ = tls.Client(&writeOnly{readOnly{strings.NewReader("")}, &sent}, config).HandshakeContext(t.Context())
	return sent.Bytes()
}

type writeOnly struct {
	readOnly
	to io.Writer
}

func (w *writeOnly) Write(b []byte) (int, error) { return w.to.Write(b) }

func TestTheNameIsReadFromAClientHello(t *testing.T) {
	for _, config := range []*tls.Config{
		{ServerName: "api.example", MinVersion: tls.VersionTLS12},
		{ServerName: "api.example", MaxVersion: tls.VersionTLS12},
		{ServerName: "api.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10},
		{ServerName: "api.example", NextProtos: []string{strings.Repeat("x", 200), "h2"}, MinVersion: tls.VersionTLS12},
	} {
		raw := helloOf(t, config)
		for name, from := range map[string]io.Reader{
			"whole":          bytes.NewReader(raw),
			"byte by byte":   iotest.OneByteReader(bytes.NewReader(raw)), // E37
			"more behind it": bytes.NewReader(append(bytes.Clone(raw), "early data"...)),
			"split records":  bytes.NewReader(splitRecord(raw, 50)), // E37
		} {
			h, err := readHello(from)
			if err != nil || h.name != "api.example" {
				t.Errorf("%s: %q, %v", name, h.name, err)
			}
			if name == "whole" && !bytes.Equal(h.raw, raw) {
				t.Errorf("%d bytes of %d are there to be sent on", len(h.raw), len(raw))
			}
		}
	}
}

// splitRecord writes a handshake in many records.
func splitRecord(raw []byte, parts int) []byte {
	const head = 5
	body := raw[head:]
	var out []byte
	for i := range parts {
		part := body[i*len(body)/parts : (i+1)*len(body)/parts]
		out = append(append(out, raw[0], raw[1], raw[2], byte(len(part)>>8), byte(len(part))), part...)
	}
	return out
}

func TestWhatIsNoClientHelloIsRefused(t *testing.T) {
	raw := helloOf(t, &tls.Config{ServerName: "api.example", MinVersion: tls.VersionTLS12})
	long := []byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}
	for name, sent := range map[string][]byte{
		"nothing":       nil,
		"plain HTTP":    []byte("GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"), // E38
		"HTTP/2":        []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"half":          raw[:len(raw)/2],
		"an alert":      noName,
		"without end":   append(long, bytes.Repeat([]byte("x"), 1<<20)...),
		"a broken name": bytes.Replace(raw, []byte("api.example"), []byte("api.exampl."), 1),
	} {
		from := bytes.NewReader(sent)
		h, err := readHello(from)
		if err == nil {
			t.Errorf("%s: names %q", name, h.name)
		}
		if len(h.raw) > maxHello {
			t.Errorf("%s: %d bytes were read", name, len(h.raw))
		}
	}
}

func TestAClientHelloHasToNameTheHostThatWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		to, name string
		want     bool
	}{
		{"api.example:443", "api.example", true},
		{"api.example:443", "API.Example", true},
		{"api.example:443", "other.example", false}, // E31
		{"api.example:443", "x.api.example", false},
		{"api.example:443", "api.example.evil", false},
		{"api.example:443", "", false},
		{"api.example:443", "192.0.2.1", false}, // E35
		{"192.0.2.1:443", "", true},
		{"192.0.2.1:443", "api.example", false},
		{"192.0.2.1:443", "192.0.2.1", true},
	} {
		to, err := parseTarget(c.to, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = hello{name: c.name}.compare(to)
		var no *refusal
		if (err == nil) != c.want || err != nil && !errors.As(err, &no) {
			t.Errorf("%s for %s: %v", c.name, c.to, err)
		}
	}
}

// compareOver runs the comparison of a tunnel whose program sends this.
func compareOver(t *testing.T, to string, send func(net.Conn)) (err error, sentOn, back []byte) {
	t.Helper()
	where, err := parseTarget(to, 0)
	if err != nil {
		t.Fatal(err)
	}
	program, inside := net.Pipe()
	outside, far := net.Pipe()
	arrived, answered := make(chan []byte, 1), make(chan []byte, 1)
	go func() { b, _ := io.ReadAll(far); arrived <- b }()
	go func() { b, _ := io.ReadAll(program); answered <- b }()
	go send(program)
	rec := newRecord("CONNECT")
	rec.to = where
	from := bufio.NewReader(inside)
	err = joinAfter(inside, outside, 10*time.Second, rec, func(p *pair) error {
		if err := p.compare(inside, from, outside, rec, 200*time.Millisecond); err != nil {
			return err
		}
		return early(outside, from, rec, time.Second)
	})
	if errors.Is(err, io.ErrClosedPipe) {
		err = nil // the program went away
	}
	return err, <-arrived, <-answered
}

func TestOnPort443ThereHasToBeAClientHello(t *testing.T) {
	raw := helloOf(t, &tls.Config{ServerName: "api.example", MinVersion: tls.VersionTLS12})
	for name, c := range map[string]struct {
		to   string
		send func(net.Conn)
		want string // what is refused, or nothing
	}{
		"the host": {"api.example:443", func(c net.Conn) { _, _ = c.Write(raw); _ = c.Close() }, ""},
		"another":  {"other.example:443", func(c net.Conn) { _, _ = c.Write(raw) }, "meant for"},
		"no TLS":   {"api.example:443", func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }, "this is none"},
		"silence":  {"api.example:443", func(net.Conn) {}, "this is none"},
		"too slow": {"api.example:443", func(c net.Conn) { // E37
			for _, b := range raw {
				time.Sleep(20 * time.Millisecond)
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}, "this is none"},
		"no TLS elsewhere":  {"api.example:22", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n"); _ = c.Close() }, ""},
		"another elsewhere": {"other.example:8443", func(c net.Conn) { _, _ = c.Write(raw) }, "meant for"},
	} {
		err, sentOn, back := compareOver(t, c.to, c.send)
		if c.want == "" {
			if err != nil || len(sentOn) == 0 {
				t.Errorf("%s: %v, %d bytes were sent on", name, err, len(sentOn))
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || len(sentOn) > 0 || !bytes.Equal(back, noName) {
			t.Errorf("%s: %v, %q sent on, %q back", name, err, sentOn, back)
		}
	}
}

func TestAProtocolInWhichTheFarEndSpeaksFirstIsNotKeptWaiting(t *testing.T) {
	where, _ := parseTarget("mail.example:2525", 0)
	program, inside := net.Pipe()
	outside, far := net.Pipe()
	rec := newRecord("CONNECT")
	rec.to = where
	ended := make(chan error, 1)
	go func() {
		ended <- joinAfter(inside, outside, 10*time.Second, rec, func(p *pair) error {
			return p.compare(inside, bufio.NewReader(inside), outside, rec, time.Second)
		})
	}()
	go func() { _, _ = io.WriteString(far, "220 hello\r\n") }()
	b := make([]byte, 100)
	if n, err := program.Read(b); string(b[:n]) != "220 hello\r\n" {
		t.Errorf("%q, %v", b[:n], err)
	}
	_ = program.Close()
	_ = far.Close()
	<-ended
}

// FuzzClientHello: whatever is sent, no more than the limit is read, what was read is there
// to be sent on, and a name that is found is one that was sent.
func FuzzClientHello(f *testing.F) {
	raw := helloOf(f, &tls.Config{ServerName: "api.example", MinVersion: tls.VersionTLS12})
	f.Add(raw, uint8(0))
	f.Add(splitRecord(raw, 7), uint8(3))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		h, err := readHello(&stepwise{bytes.Clone(sent), int(step)})
		if len(h.raw) > maxHello || !bytes.HasPrefix(sent, h.raw) {
			t.Fatalf("%d bytes of %d were read", len(h.raw), len(sent))
		}
		if err != nil {
			return
		}
		whole, err := readHello(bytes.NewReader(sent))
		if err != nil || whole.name != h.name {
			t.Fatalf("%q in steps and %q at once, %v", h.name, whole.name, err)
		}
		if strings.Contains(h.name, "\x00") && (hello{name: h.name}).compare(target{host: "api.example", port: 443}) == nil {
			t.Fatalf("%q passes", h.name)
		}
	})
}
