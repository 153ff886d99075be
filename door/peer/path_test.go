package peer_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/session/fleet"
)

// message is a request or an answer, as an attacker on the path sees it.
type message struct {
	Method, Path string
	Status       int
	Header       http.Header
	Body         []byte
}

// path is an attacker between two servers, who sees everything and may change
// it.
type path struct {
	t      *testing.T
	to     string
	l      net.Listener
	client *peer.Client // of the server that asks

	mu       sync.Mutex
	requests []message                                   // guarded by mu; those that ask for something
	request  func(m *message)                            // guarded by mu; changes what is asked
	answer   func(ask, answer message) message           // guarded by mu; answers instead
	stream   func(inward bool, r io.Reader, w io.Writer) // guarded by mu; carries a stream
	conns    map[net.Conn]bool                           // guarded by mu
	running  sync.WaitGroup
}

// between puts an attacker on the path to the first server.
func (p *pair) between() *path {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	m := &path{t: p.t, to: p.a.http.Listener.Addr().String(), l: l, conns: make(map[net.Conn]bool), client: peer.NewClient(p.key, p.b.FleetNow, p.log)}
	m.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.running.Go(func() { m.carry(c) })
		}
	})
	p.t.Cleanup(func() {
		m.client.Close()
		_ = l.Close()
		m.mu.Lock()
		for c := range m.conns {
			_ = c.Close()
		}
		m.mu.Unlock()
		m.running.Wait()
	})
	return m
}

// route leads from the second server to the first, through the attacker.
func (m *path) route(p *pair) fleet.Route {
	r := p.route()
	r.To.Addr = m.l.Addr().String()
	return r
}

func (m *path) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// asked returns the newest request that asks for something.
func (m *path) asked() message {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		m.t.Fatal("nothing was asked")
	}
	return m.requests[len(m.requests)-1]
}

// carry forwards a connection. It begins with a handshake alone.
func (m *path) carry(asker net.Conn) {
	asked, err := net.Dial("tcp", m.to)
	if err != nil {
		return
	}
	m.set(func() { m.conns[asker], m.conns[asked] = true, true })
	defer m.set(func() { delete(m.conns, asker); delete(m.conns, asked) })
	defer func() { _ = asker.Close(); _ = asked.Close() }()
	in, out := bufio.NewReader(asker), bufio.NewReader(asked)
	for first := true; ; first = false {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		ask := message{Method: req.Method, Path: req.URL.Path, Header: req.Header, Body: body}
		m.mu.Lock()
		request, answer, stream := m.request, m.answer, m.stream
		if !first {
			m.requests = append(m.requests, ask)
		}
		m.mu.Unlock()
		if !first && request != nil {
			ask.Header = ask.Header.Clone()
			request(&ask)
		}
		if send(asked, ask) != nil {
			return
		}
		if first || answer == nil {
			if stream = orPlain(stream); !m.relay(asker, asked, out, req, stream, in) {
				return
			}
			continue
		}
		got, err := receive(out, req)
		if err != nil {
			return
		}
		if write(asker, answer(ask, got)) != nil {
			return
		}
	}
}

func orPlain(stream func(bool, io.Reader, io.Writer)) func(bool, io.Reader, io.Writer) {
	if stream == nil {
		return func(_ bool, r io.Reader, w io.Writer) { _, _ = io.Copy(w, r) }
	}
	return stream
}

// relay hands an answer on, and the stream that follows it.
func (m *path) relay(asker, asked net.Conn, out *bufio.Reader, req *http.Request, stream func(bool, io.Reader, io.Writer), in *bufio.Reader) bool {
	res, err := http.ReadResponse(out, req)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusOK && req.URL.Path == peer.Prefix+"follow":
		_, _ = io.WriteString(asker, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n")
		_ = res.Header.Write(asker)
		_, _ = io.WriteString(asker, "\r\n")
		chunks := httputil.NewChunkedWriter(asker)
		stream(false, res.Body, chunks)
		_ = chunks.Close() // it ends well, as far as HTTP can tell
		_, _ = io.WriteString(asker, "\r\n")
		return false
	case res.StatusCode != http.StatusSwitchingProtocols:
		return res.Write(asker) == nil && !res.Close
	}
	_ = res.Write(asker)
	var inward sync.WaitGroup
	inward.Go(func() { stream(true, in, asked); _ = asked.Close() })
	stream(false, out, asker)
	_ = asker.Close()
	inward.Wait()
	return false
}

// send writes a request as it is.
func send(w io.Writer, m message) error {
	var b bytes.Buffer
	b.WriteString(m.Method + " " + m.Path + " HTTP/1.1\r\nHost: server\r\n")
	h := m.Header.Clone()
	h.Del("Content-Length")
	_ = h.Write(&b)
	b.WriteString("Content-Length: " + strconv.Itoa(len(m.Body)) + "\r\n\r\n")
	b.Write(m.Body)
	_, err := w.Write(b.Bytes())
	return err
}

func receive(r *bufio.Reader, req *http.Request) (message, error) {
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return message{}, err
	}
	m := message{Status: res.StatusCode, Header: res.Header}
	if res.StatusCode != http.StatusSwitchingProtocols {
		m.Body, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	return m, err
}

func write(w io.Writer, m message) error {
	h := m.Header.Clone()
	for _, name := range []string{"Content-Length", "Transfer-Encoding"} {
		h.Del(name)
	}
	res := &http.Response{StatusCode: m.Status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(bytes.NewReader(m.Body)), ContentLength: int64(len(m.Body))}
	return res.Write(w)
}

// show sends a message that was seen once more, to a server.
func show(t *testing.T, addr string, m message) message {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := send(c, m); err != nil {
		t.Fatal(err)
	}
	got, err := receive(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
