package connlimit_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a handler under a limit, and says where.
func serve(t *testing.T, most int, h http.HandlerFunc) (*connlimit.Limit, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := connlimit.New(most)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Stranger") == "" {
			connlimit.InUse(r.Context())
		}
		h(w, r)
	})}
	limit.Apply(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(limit.Listen(l)) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return limit, l.Addr().String()
}

func dial(t *testing.T, to string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// ask sends a request on c and returns the status line.
func ask(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return err.Error()
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.Status
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

func TestWhoComesIsServedHoweverManyWait(t *testing.T) {
	const most = 8
	limit, at := serve(t, most, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	var held []net.Conn
	for range 5 * most {
		c := dial(t, at)
		_, _ = io.WriteString(c, "GET / HT") // a head that never ends is waiting too
		held = append(held, c)
	}
	for range 3 {
		if got := ask(t, dial(t, at)); got != "200 OK" {
			t.Fatalf("answered with %s", got)
		}
	}
	if open, cut, refused := limit.Counts(); open > most || cut == 0 || refused != 0 {
		t.Errorf("open %d, cut %d, refused %d", open, cut, refused)
	}
	_ = held[0].SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := held[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("who waited the longest was not closed: %v", err)
	}
}

func TestWhoIsBeingAnsweredIsNotCut(t *testing.T) {
	const most = 4
	release, began := make(chan struct{}), make(chan struct{}, most)
	limit, at := serve(t, most, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("a stream was cut")
		}
	})
	answers := make(chan string, most)
	for range most {
		c := dial(t, at)
		go func() { answers <- ask(t, c) }()
		<-began
	}
	if got := ask(t, dial(t, at)); got != "503 Service Unavailable" {
		t.Errorf("one too many got %s", got)
	}
	close(release)
	for range most {
		if got := <-answers; got != "200 OK" {
			t.Errorf("a stream ended with %s", got)
		}
	}
	eventually(t, "there is room again", func() bool { return ask(t, dial(t, at)) == "200 OK" })
	if _, _, refused := limit.Counts(); refused == 0 {
		t.Error("nobody was refused")
	}
}

func TestATakenConnectionIsNotCutAndGivesItsPlaceBack(t *testing.T) {
	taken := make(chan net.Conn, 1)
	limit, at := serve(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		taken <- c
	})
	c := dial(t, at)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	mine := <-taken
	time.Sleep(20 * time.Millisecond) // the handler has returned
	if got := ask(t, dial(t, at)); got != "503 Service Unavailable" {
		t.Errorf("one too many got %s", got)
	}
	if _, err := io.WriteString(mine, "x"); err != nil {
		t.Errorf("the taken one: %v", err)
	}
	_ = mine.Close()
	if open, _, _ := limit.Counts(); open != 0 {
		t.Errorf("%d are open", open)
	}
}

func TestAServersOwnContextStays(t *testing.T) {
	type key struct{}
	s := &http.Server{ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "own") }}
	connlimit.New(1).Apply(s)
	if got := s.ConnContext(t.Context(), nil).Value(key{}); got != "own" {
		t.Errorf("got %v", got)
	}
}

// A body that never comes would hold its connection for minutes: the server waits for
// the rest of it before it answers.
func TestAStrangerWhoHoldsARequestIsCutForSomebodyElse(t *testing.T) {
	limit, at := serve(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = http.NewResponseController(w).Flush()
	})
	for range 2 {
		c := dial(t, at)
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: localhost\r\nStranger: yes\r\nContent-Length: 200000\r\n\r\nabc"); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if got := ask(t, dial(t, at)); got != "401 Unauthorized" {
			t.Errorf("the next is answered %q", got)
		}
	}
	if _, cut, refused := limit.Counts(); cut == 0 || refused > 0 {
		t.Errorf("%d were cut, %d refused", cut, refused)
	}
}
