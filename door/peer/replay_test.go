package peer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

func schedule(id string) law.Verb {
	return law.Describe{Metadata: map[string]*string{id: &id}}
}

func TestClocksThatAreADayApartDoNoHarm(t *testing.T) {
	p := newPair(t) // whose database is more than a day ahead of this machine
	id := p.create()
	own := peer.NewClient(p.key, func() (time.Time, error) { return time.Now(), nil }, p.log)
	defer own.Close()
	if err := own.Do(t.Context(), p.route(), id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("by the machine's clock: %v", err)
	}
	for seconds, want := range map[int64]error{
		0: nil, 20: nil, -20: nil, 40: fleet.ErrUnreached, -40: fleet.ErrUnreached,
	} {
		p.b.store.off.Store(seconds * int64(time.Second))
		if _, err := p.b.client.Who(t.Context(), p.route()); !errors.Is(err, want) {
			t.Errorf("%d s from what the other server takes for the database's time: %v", seconds, err)
		}
		p.b.client.Close()
	}
}

func TestAServerWithoutATimeAsksNothing(t *testing.T) {
	p := newPair(t)
	id := p.create()
	c := peer.NewClient(p.key, func() (time.Time, error) { return time.Now(), dormouse.ErrLeaseLost }, p.log)
	if err := c.Do(t.Context(), p.route(), id, ada, law.Wake{}); !errors.Is(err, dormouse.ErrLeaseLost) {
		t.Errorf("told %v", err)
	}
	if n := p.a.dials.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// replayed shows a request that was answered once more: to the server that did,
// later to that, and to one that never was the one that was meant.
func replayed(t *testing.T, p *pair, other *server, m message) {
	t.Helper()
	at := p.a.http.Listener.Addr().String()
	if got := show(t, at, m); got.Status != http.StatusConflict {
		t.Errorf("%s again: %d", m.Path, got.Status)
	}
	if got := show(t, other.http.Listener.Addr().String(), m); got.Status != http.StatusMisdirectedRequest {
		t.Errorf("%s shown to another server: %d", m.Path, got.Status)
	}
	for _, later := range []time.Duration{29 * time.Second, time.Minute, 2 * time.Minute, time.Hour} {
		p.a.store.off.Store(int64(later))
		if got := show(t, at, m); got.Status != http.StatusConflict {
			t.Errorf("%s again after %v: %d", m.Path, later, got.Status)
		}
	}
}

func TestWhatWasAskedOnceIsNotDoneTwice(t *testing.T) {
	for _, path := range []string{"do", "who", "follow"} {
		t.Run(path, func(t *testing.T) {
			p := newPair(t)
			id, other, m := p.create(), p.open(), p.between()
			switch path {
			case "do":
				if err := m.client.Do(t.Context(), m.route(p), id, ada, prompt(id, "p", `SCRIPT[{"text":"ok"}]`)); err != nil {
					t.Fatal(err)
				}
			case "who":
				if _, err := m.client.Who(t.Context(), m.route(p)); err != nil {
					t.Fatal(err)
				}
			case "follow":
				ctx, stop := context.WithCancel(t.Context())
				err := m.client.Follow(ctx, m.route(p), id, 0, func(feed.Relayed) { stop() })
				if stop(); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			ask := m.asked()
			if ask.Path != peer.Prefix+path {
				t.Fatalf("asked %s", ask.Path)
			}
			replayed(t, p, other, ask)
		})
	}
}

// flip changes a digit of one part of a signature.
func flip(part int) func(*message) {
	return func(m *message) {
		parts := strings.Split(m.Header.Get("Authorization"), ".")
		last := len(parts[part]) - 1
		digit := byte('1')
		if parts[part][last] == digit {
			digit = '2'
		}
		parts[part] = parts[part][:last] + string(digit)
		m.Header.Set("Authorization", strings.Join(parts, "."))
	}
}

func TestARequestThatWasChangedIsNotCarriedOut(t *testing.T) {
	p := newPair(t)
	id, m := p.create(), p.between()
	for name, change := range map[string]func(*message){
		"from":     flip(1),
		"to":       flip(2),
		"time":     flip(3),
		"nonce":    flip(4),
		"digest":   flip(5),
		"code":     flip(6),
		"path":     func(m *message) { m.Path = peer.Prefix + "ask" },
		"query":    func(m *message) { m.Path += "?x" },
		"method":   func(m *message) { m.Method = http.MethodPut },
		"body":     func(m *message) { m.Body[len(m.Body)-3]++ },
		"nothing":  func(m *message) { m.Body = nil },
		"unsigned": func(m *message) { m.Header.Del("Authorization") },
	} {
		m.set(func() { m.request = change })
		err := m.client.Do(t.Context(), m.route(p), id, ada, prompt(id, name, `SCRIPT[{"text":"ok"}]`))
		if !errors.Is(err, fleet.ErrUnreached) && !errors.Is(err, dormouse.ErrUnknownOutcome) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
	if all, err := p.a.Prompts(t.Context(), id); err != nil || len(all) != 0 {
		t.Errorf("%d prompts, %v", len(all), err)
	}
	m.set(func() { m.request = nil })
	if err := m.client.Do(t.Context(), m.route(p), id, ada, prompt(id, "p", `SCRIPT[{"text":"ok"}]`)); err != nil {
		t.Error(err)
	}
}

// A command whose answer proves nothing may have been carried out, and may not.
func TestAnAnswerThatProvesNothingIsNoAnswer(t *testing.T) {
	p := newPair(t)
	id, other, m := p.create(), p.open(), p.between()
	var old message
	plain := func(status int, body string) func(ask, got message) message {
		return func(message, message) message {
			return message{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
		}
	}
	changed := func(change func(*message)) func(ask, got message) message {
		return func(_, got message) message { change(&got); return got }
	}
	m.set(func() { m.answer = changed(func(got *message) { old = *got }) })
	if err := m.client.Do(t.Context(), m.route(p), id, ada, schedule("first")); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(ask, got message) message{
		"well, unsigned":                       plain(200, "{}"),
		"refused, unsigned":                    plain(421, `{"type":"not_me","message":"no"}`),
		"unauthorized":                         plain(401, `{"type":"unauthorized","message":"no"}`),
		"another program":                      plain(404, "no"),
		"a proxy that gave up":                 plain(502, "no"),
		"a redirection":                        plain(307, ""),
		"an old answer":                        func(message, message) message { return old },
		"another status":                       changed(func(m *message) { m.Status = 409 }),
		"another body":                         changed(func(m *message) { m.Body = old.Body }),
		"a body cut":                           changed(func(m *message) { m.Body = m.Body[:len(m.Body)-18] }),
		"no body":                              changed(func(m *message) { m.Body = nil }),
		"a body changed":                       changed(func(m *message) { m.Body[5]++ }),
		"no proof":                             changed(func(m *message) { m.Header.Del("Dormouse-Answer") }),
		"the answer to the same request again": func(ask, _ message) message { return show(t, m.to, ask) },
		"what another server says to the request": func(ask, _ message) message { return show(t, other.http.Listener.Addr().String(), ask) },
	} {
		m.set(func() { m.answer = answer })
		err := m.client.Do(t.Context(), m.route(p), id, ada, schedule(name))
		if !errors.Is(err, dormouse.ErrUnknownOutcome) || errors.Is(err, fleet.ErrUnreached) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.set(func() {
		m.answer = func(ask, _ message) message { p.a.store.off.Store(int64(time.Minute)); return show(t, m.to, ask) }
	})
	if err := m.client.Do(t.Context(), m.route(p), id, ada, schedule("last")); !errors.Is(err, dormouse.ErrUnknownOutcome) || errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("the answer to the same request when its time has passed: %v", err)
	}
}

func TestWhetherACommandWasSentIsKnown(t *testing.T) {
	p := newPair(t)
	id := p.create()
	for name, c := range map[string]struct {
		answer string // to a handshake
	}{
		"it dies on the way":   {""},
		"another program":      {"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n"},
		"a proxy that gave up": {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n"},
		"an older version":     {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 38\r\n\r\n{\"type\":\"unauthorized\",\"message\":\"no\"}\n"},
		"no HTTP":              {"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"},
		"endless headers":      {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 1000)},
	} {
		route := p.route()
		route.To.Addr = p.impostor(c.answer)
		if err := p.b.client.Do(t.Context(), route, id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) || errors.Is(err, dormouse.ErrUnknownOutcome) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:1", ""} {
		route := p.route()
		route.To.Addr = addr
		if err := p.b.client.Do(t.Context(), route, id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) {
			t.Errorf("at %q: %v", addr, err)
		}
	}
	m := p.between()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	over := make(chan struct{})
	m.set(func() { m.answer = func(_, got message) message { <-over; return got } })
	if err := m.client.Do(ctx, m.route(p), id, ada, law.Wake{}); !errors.Is(err, dormouse.ErrUnknownOutcome) {
		t.Errorf("it does not answer: %v", err)
	}
	close(over)
}

func TestServersOfAnotherVersionAreUnreachedAndToldAboutOnce(t *testing.T) {
	p := newPair(t)
	var told counter
	p.log = told.logger()
	id, c := p.create(), p.open()
	self, _ := c.Self()
	route := p.route()
	route.From = self
	route.To.Addr = p.impostor("HTTP/1.1 401 Unauthorized\r\nContent-Length: 38\r\n\r\n{\"type\":\"unauthorized\",\"message\":\"no\"}\n")
	before := told.n.Load()
	for range 5 {
		if err := c.client.Do(t.Context(), route, id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) {
			t.Errorf("asked: %v", err)
		}
	}
	if n := told.n.Load() - before; n != 1 {
		t.Errorf("the log was told %d times", n)
	}
	before = told.n.Load() // and strangers are worth one line in a while
	for i := range 50 {
		got := show(t, c.http.Listener.Addr().String(), message{Method: http.MethodPost, Path: peer.Prefix + "do", Header: http.Header{
			"Authorization": {fmt.Sprintf("Dormouse 1.%d.%064d.%064d", i, 0, 0)},
		}})
		if got.Status != http.StatusUnauthorized || !strings.Contains(string(got.Body), "version") {
			t.Fatalf("a stranger is told %d %s", got.Status, got.Body)
		}
	}
	if n := told.n.Load() - before; n > 2 {
		t.Errorf("50 strangers wrote %d lines", n)
	}
}

func TestAStreamOfEventsThatWasChangedIsNotBelieved(t *testing.T) {
	p := newPair(t)
	id, m := p.create(), p.between()
	for name, c := range map[string]struct {
		stream func(inward bool, r io.Reader, w io.Writer)
		want   error
	}{
		"ended": {func(_ bool, r io.Reader, w io.Writer) {
			_, _ = w.Write(frame(r))
		}, io.ErrUnexpectedEOF},
		"a frame twice": {func(_ bool, r io.Reader, w io.Writer) {
			b := frame(r)
			_, _ = w.Write(append(b, b...))
		}, dormouse.ErrInvalid},
		"a frame left out": {func(_ bool, r io.Reader, w io.Writer) {
			frame(r)
			_, _ = w.Write(frame(r))
		}, dormouse.ErrInvalid},
		"a frame changed": {func(_ bool, r io.Reader, w io.Writer) {
			b := frame(r)
			b[len(b)-1]++
			_, _ = w.Write(b)
		}, dormouse.ErrInvalid},
		"plain text": {func(_ bool, _ io.Reader, w io.Writer) {
			_, _ = io.WriteString(w, strings.Repeat(`{"upto":7}`+"\n", 4000))
		}, dormouse.ErrInvalid},
	} {
		m.set(func() { m.stream = c.stream })
		err := m.client.Follow(t.Context(), m.route(p), id, 0, func(feed.Relayed) {
			if name != "ended" && name != "a frame twice" {
				t.Errorf("%s: it is believed", name)
			}
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// frame reads one frame of a stream, as far as an attacker on the path can.
func frame(r io.Reader) []byte {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil
	}
	rest := make([]byte, int(head[0])<<8+int(head[1])+16)
	_, _ = io.ReadFull(r, rest)
	return append(head[:], rest...)
}
