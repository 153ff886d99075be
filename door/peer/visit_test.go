//go:build linux

package peer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// visited is a pair whose second server visits a sandbox of the first.
func visited(t *testing.T) (*pair, dormouse.SessionID, *visit.Visit) {
	t.Helper()
	p := newPairOn(t, localtest.Open(t))
	id := p.create()
	v, err := p.b.Reach(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if p.a.Loaded() != 1 || p.b.Loaded() != 0 {
		t.Fatalf("%d sessions are loaded where they belong, %d elsewhere", p.a.Loaded(), p.b.Loaded())
	}
	return p, id, v
}

func terminal(id string, command ...string) visit.Stream {
	return visit.Stream{Terminal: &visit.Terminal{ID: id, Command: command, Rows: 30, Cols: 100}}
}

// expect reads until it has seen want.
func expect(t *testing.T, c io.Reader, want string) {
	t.Helper()
	var seen []byte
	for b := make([]byte, 1<<10); !bytes.Contains(seen, []byte(want)); {
		n, err := c.Read(b)
		if seen = append(seen, b[:n]...); err != nil {
			t.Fatalf("%q instead of %q, %v", seen, want, err)
		}
	}
}

func TestATerminalIsServedByAServerThatDoesNotOwnTheSession(t *testing.T) {
	_, _, v := visited(t)
	c, err := v.Open(t.Context(), terminal("t", "sh", "-c", "stty size; read x; stty size; echo got $x; exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expect(t, c, "30 100")
	if err := v.Resize(t.Context(), "t", 40, 120); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "word\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, c, "40 120\r\ngot word\r\n")
	if rest, err := io.ReadAll(c); err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	all, err := v.Terminals(t.Context())
	if err != nil || len(all) != 1 || all[0].Exit == nil || *all[0].Exit != 7 {
		t.Errorf("terminals: %+v, %v", all, err)
	}
	if err := v.Resize(t.Context(), "t", 40, 120); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("resized one that is over: %v", err)
	}
}

func TestFilesGoThroughAServerThatDoesNotOwnTheSession(t *testing.T) {
	_, _, v := visited(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	if err := w.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	status, err := v.PutTree(t.Context(), "there", bytes.NewReader(in.Bytes()))
	if err != nil || status.Files != 1 || status.Bytes != int64(len(content)) {
		t.Fatalf("put: %+v, %v", status, err)
	}
	var out bytes.Buffer
	if status, err = v.GetTree(t.Context(), "there/big", &out); err != nil || status.Files != 1 {
		t.Fatalf("got: %+v, %v", status, err)
	}
	r := tar.NewReader(&out)
	if h, err := r.Next(); err != nil || h.Name != "big" {
		t.Fatalf("got %+v, %v", h, err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	// A runner that had enough says why, however much is still on its way.
	bad := append(bytes.Repeat([]byte("no tar "), 1000), in.Bytes()...)
	if _, err := v.PutTree(t.Context(), "there", bytes.NewReader(bad)); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("put what is no tar: %v", err)
	}
	if _, err := v.GetTree(t.Context(), "nowhere", io.Discard); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("got what is not there: %v", err)
	}
}

func TestAPortIsReachedThroughAServerThatDoesNotOwnTheSession(t *testing.T) {
	_, _, v := visited(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a local sandbox has the ports of its machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(b))
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	c, err := v.Open(t.Context(), visit.Stream{Port: &visit.PortStream{Port: port}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil || c.CloseWrite() != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
		t.Errorf("answered %q, %v", b, err)
	}
}

func TestAVisitToAnotherServerEndsWithTheSandbox(t *testing.T) {
	p, id, v := visited(t)
	c, err := v.Open(t.Context(), terminal("t", "sh", "-c", "echo up; read x"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expect(t, c, "up")
	if err := p.b.Do(t.Context(), id, ada, law.Hibernate{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a terminal that was cut off looks as if it had ended")
	}
	if _, err := v.Terminals(t.Context()); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("asked after the end: %v", err)
	}
}

// A visitor that leaves is gone from the owner too, even if the terminal prints
// nothing.
func TestAVisitorOfAnotherServerThatLeavesIsGone(t *testing.T) {
	_, _, v := visited(t)
	c, err := v.Open(t.Context(), terminal("t", "sh", "-c", "echo up; read x"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, "up")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all, err := v.Terminals(t.Context())
		if err != nil || len(all) != 1 || all[0].Exit != nil {
			t.Fatalf("terminals: %+v, %v", all, err)
		}
		if all[0].Attached == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the visitor is still there")
		}
	}
}

// past opens a terminal through an attacker on the path.
func past(t *testing.T) (*pair, *path, visit.Errand) {
	t.Helper()
	p, id, _ := visited(t)
	stream := terminal("t", "sh", "-c", "echo up; read x; echo got $x")
	return p, p.between(), visit.Errand{Session: id, Stream: &stream}
}

func TestAnErrandAndATerminalAreNotHadTwice(t *testing.T) {
	p, m, e := past(t)
	other := p.open()
	if _, err := m.client.Ask(t.Context(), m.route(p), visit.Errand{Session: e.Session}); err != nil {
		t.Fatal(err)
	}
	asked := m.asked()
	c, err := m.client.Open(t.Context(), m.route(p), e)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, "up")
	opened := m.asked()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if asked.Path != peer.Prefix+"ask" || opened.Path != peer.Prefix+"open" {
		t.Fatalf("asked %s and %s", asked.Path, opened.Path)
	}
	if got := show(t, m.to, opened); got.Status != http.StatusConflict {
		t.Errorf("a terminal is opened again: %d", got.Status)
	}
	replayed(t, p, other, asked)
	replayed(t, p, other, opened)
}

func TestATerminalThatWasChangedOnTheWayIsCut(t *testing.T) {
	twice := func(r io.Reader, w io.Writer) {
		b := frame(r)
		_, _ = w.Write(append(b, b...))
		_, _ = io.Copy(w, r)
	}
	changed := func(r io.Reader, w io.Writer) {
		b := frame(r)
		b[4]++
		_, _ = w.Write(b)
		_, _ = io.Copy(w, r)
	}
	put := func(r io.Reader, w io.Writer) {
		b := frame(r)
		_, _ = io.WriteString(w, "\x00\x05word\n0123456789abcdef")
		_, _ = w.Write(b)
		_, _ = io.Copy(w, r)
	}
	cut := func(r io.Reader, w io.Writer) { _, _ = w.Write(frame(r)) }
	p, m, e := past(t)
	for name, change := range map[string]func(io.Reader, io.Writer){"twice": twice, "changed": changed, "put in": put, "cut": cut} {
		for _, way := range []bool{false, true} {
			stream := terminal(fmt.Sprintf("t-%d-%t", len(name), way), "sh", "-c", "echo up; read x; echo got $x")
			e.Stream = &stream
			m.set(func() {
				m.stream = func(inward bool, r io.Reader, w io.Writer) {
					if inward == way {
						change(r, w)
					} else {
						_, _ = io.Copy(w, r)
					}
				}
			})
			c, err := m.client.Open(t.Context(), m.route(p), e)
			if err != nil {
				t.Fatal(err)
			}
			if way {
				expect(t, c, "up")
				_, _ = io.WriteString(c, "one")
				_, _ = io.WriteString(c, "two\n")
			}
			seen, err := io.ReadAll(c)
			if err == nil || bytes.Contains(seen, []byte("got")) {
				t.Errorf("%s, inward %v: %q, %v", name, way, seen, err)
			}
			_ = c.Close()
		}
	}
}
