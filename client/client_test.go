package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func TestARefusedRequestIsAnError(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   client.Error
		is     error
		says   string
	}{
		{
			404, `{"error":{"type":"not_found","message":"session sesn_a: not found"},"request_id":"req_1"}`,
			client.Error{Status: 404, Code: "not_found", Message: "session sesn_a: not found", Request: "req_1"},
			dormouse.ErrNotFound, "session sesn_a: not found",
		},
		{
			503, `{"error":{"type":"closing","message":"server is shutting down"},"request_id":"req_1"}`,
			client.Error{Status: 503, Code: "closing", Message: "server is shutting down", Request: "req_1"},
			dormouse.ErrClosing, "server is shutting down (503 closing, req_1)",
		},
		{
			409, `{"error":{"type":"of_the_future","message":"no"}}`,
			client.Error{Status: 409, Code: "of_the_future", Message: "no"},
			nil, "no",
		},
		{502, `<html>Bad Gateway</html>`, client.Error{Status: 502, Message: "the server answered 502 Bad Gateway"}, nil, "the server answered 502 Bad Gateway (502 , )"},
		{401, ``, client.Error{Status: 401, Message: "the server answered 401 Unauthorized"}, nil, "the server answered 401 Unauthorized"},
		{400, `["error"]`, client.Error{Status: 400, Message: "the server answered 400 Bad Request"}, nil, "the server answered 400 Bad Request"},
		{500, strings.Repeat("x", 2<<20), client.Error{Status: 500, Message: "the server answered 500 Internal Server Error"}, nil, "the server answered"},
	} {
		_, to := play(t, answers(c.status, c.body))
		_, err := to.Show(t.Context(), id)
		got, ok := errors.AsType[*client.Error](err)
		if !ok {
			t.Errorf("%d: %v", c.status, err)
			continue
		}
		if diff := cmp.Diff(c.want, *got); diff != "" || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%d: %v\n%s", c.status, err, diff)
		}
		if c.is == nil && errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("%d is not found", c.status)
		}
	}
}

func TestATokenIsNotTakenElsewhere(t *testing.T) {
	other, _ := play(t, answers(http.StatusOK, "{}"))
	_, c := play(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	_, err := c.Show(t.Context(), id)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusTemporaryRedirect || len(other.requests()) != 0 {
		t.Errorf("%v, and %d requests elsewhere", err, len(other.requests()))
	}
}

func TestWhatIsNoServerIsRefused(t *testing.T) {
	for _, url := range []string{"", "x", "127.0.0.1:80", "http://", "ftp://host", "http://user:word@host", "http://a b"} {
		if _, err := client.New(client.Options{URL: url}); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
	if _, err := client.New(client.Options{URL: "https://host/below"}); err != nil {
		t.Error(err)
	}
}

func TestAServerThatDoesNotAnswerIsNotWaitedForForEver(t *testing.T) {
	s := httptest.NewServer(holds(""))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Show(t.Context(), id); err == nil || !strings.Contains(err.Error(), "did not answer in time") && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := c.Show(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no server answers at "+s.URL) {
		t.Errorf("%v", err)
	}
}

func TestAnAnswerIsKeptByteForByte(t *testing.T) {
	const said = `{"session": "sesn_a",  "mystery": [1]}` + "\n"
	_, c := play(t, answers(http.StatusOK, said))
	var raw []byte
	s, err := c.Show(client.KeepAnswer(t.Context(), &raw), id)
	if err != nil || s.Session != id || string(raw) != said {
		t.Errorf("%+v, %q: %v", s, raw, err)
	}
	if _, err := c.Show(t.Context(), id); err != nil {
		t.Error(err)
	}
}

func TestHistoryIsReadPageByPage(t *testing.T) {
	pages := []http.HandlerFunc{
		answers(http.StatusOK, `{"events":[{"seq":1,"type":"a","x":1},{"seq":4,"type":"b"}],"next":5,"more":true}`),
		answers(http.StatusOK, `{"events":[],"next":9,"more":true}`),
		answers(http.StatusOK, `{"events":[{"seq":10,"type":"c"}],"next":10,"more":false}`),
		answers(http.StatusInternalServerError, ""),
	}
	for limit, want := range map[int][]string{0: {"0 1000", "5 1000", "9 1000"}, 2: {"0 2"}, 3: {"0 3", "5 1", "9 1"}} {
		s, c := play(t, pages...)
		var seqs []uint64
		for e, err := range c.Events(t.Context(), id, client.EventOptions{Limit: limit}) {
			if err != nil {
				t.Fatal(err)
			}
			if seqs = append(seqs, e.Seq); e.Seq == 1 && string(e.Raw) != `{"seq":1,"type":"a","x":1}` {
				t.Errorf("an event is %s", e.Raw)
			}
		}
		var asked []string
		for _, r := range s.requests() {
			asked = append(asked, r.URL.Query().Get("after")+" "+r.URL.Query().Get("limit"))
		}
		if !slices.Equal(asked, want) || !slices.Equal(seqs, []uint64{1, 4, 10}[:len(want)/2+2]) {
			t.Errorf("%d: it asked %q and was given %v", limit, asked, seqs)
		}
	}
}

func TestATarThatIsCutOffIsNotWhole(t *testing.T) {
	whole := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", client.TreeStatus)
		_, _ = w.Write([]byte("tar"))
		w.Header().Set(client.TreeStatus, `{"files":1,"bytes":3}`)
	}
	for name, act := range map[string]http.HandlerFunc{"whole": whole, "no trailer": answers(http.StatusOK, "tar"), "cut": streams("ta")} {
		s, c := play(t, act)
		f, err := c.GetFiles(t.Context(), id, "a b/c")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, f)
		held, cut := f.Copied()
		if ok := err == nil && cut == nil && held.Bytes == 3; ok != (name == "whole") {
			t.Errorf("%s: %+v, %v, %v", name, held, err, cut)
		}
		if got := s.requests()[0].URL.Query().Get("path"); got != "a b/c" {
			t.Errorf("it asked for %q", got)
		}
		_ = f.Close()
	}
}

func TestATarIsSentAsItIs(t *testing.T) {
	for _, size := range []int64{0, 5} {
		s, c := play(t, func(w http.ResponseWriter, r *http.Request) {
			if b, err := io.ReadAll(r.Body); err != nil || string(b) != "bytes" {
				t.Errorf("the server was sent %q, %v", b, err)
			}
			_, _ = w.Write([]byte(`{"files":1,"bytes":5}`))
		})
		held, err := c.PutFiles(t.Context(), id, "docs", client.Tar{Reader: strings.NewReader("bytes"), Size: size})
		if err != nil || held.Bytes != 5 {
			t.Errorf("%+v, %v", held, err)
		}
		r := s.requests()[0]
		if known := r.ContentLength == 5; known != (size > 0) || r.Header.Get("Content-Type") != "application/x-tar" || r.Header.Get("Expect") != "100-continue" {
			t.Errorf("%d bytes came with %v", r.ContentLength, r.Header)
		}
	}
}

func TestACommandIsShownAsItPrints(t *testing.T) {
	_, c := play(t, answers(http.StatusOK, `{"text":"one\n"}`+"\n"+`{"exec":{"id":"sevt_a","exit":3,"output":"one\ntwo\n"}}`+"\n"))
	var live bytes.Buffer
	e, err := c.Exec(t.Context(), id, client.ExecOptions{Command: "x"}, &live)
	if err != nil || e.Exit != 3 || live.String() != "one\ntwo\n" {
		t.Errorf("%+v, %q: %v", e, live.String(), err)
	}
	_, c = play(t, answers(http.StatusOK, `{"text":"one\n"}`+"\n"+`{"ex`))
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{Command: "x"}, nil); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "may still run") {
		t.Errorf("%v", err)
	}
}

// socket plays a server's end of a WebSocket.
func socket(t *testing.T, act func(context.Context, *websocket.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(client.TerminalID, "term_a")
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		act(r.Context(), ws)
	}
}

func TestAPortSendsItsOutputAndStillListens(t *testing.T) {
	said := make(chan string, 1)
	_, c := play(t, socket(t, func(ctx context.Context, ws *websocket.Conn) {
		_ = ws.Write(ctx, websocket.MessageBinary, []byte("hello"))
		_ = ws.Write(ctx, websocket.MessageBinary, nil)
		_, b, _ := ws.Read(ctx)
		_, end, err := ws.Read(ctx)
		if len(end) != 0 || err != nil {
			t.Errorf("the end is %q, %v", end, err)
		}
		said <- string(b)
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}))
	p, err := c.DialPort(t.Context(), id, 80)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if b, err := io.ReadAll(p); string(b) != "hello" || err != nil {
		t.Errorf("it said %q, %v", b, err)
	}
	if _, err := io.WriteString(p, "bye"); err != nil || p.CloseWrite() != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(p); len(b) != 0 || err != nil || <-said != "bye" {
		t.Errorf("after the end it said %q, %v", b, err)
	}
}

func TestATerminalSaysHowItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		code   websocket.StatusCode
		reason string
		exit   int
		says   string
	}{
		"by itself":        {websocket.StatusNormalClosure, `{"exit":7}`, 7, ""},
		"nobody knows how": {websocket.StatusNormalClosure, "well", 0, "well"},
		"with the server":  {websocket.StatusServiceRestart, "the server goes", 0, "the server goes"},
	} {
		_, to := play(t, socket(t, func(ctx context.Context, ws *websocket.Conn) {
			_ = ws.Write(ctx, websocket.MessageBinary, []byte("$ "))
			if _, b, _ := ws.Read(ctx); string(b) != `{"resize":{"rows":4,"cols":5}}` {
				t.Errorf("it was told %q", b)
			}
			_ = ws.Close(c.code, c.reason)
		}))
		term, err := to.OpenTerminal(t.Context(), id, client.TerminalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Resize(4, 5); err != nil || term.ID != "term_a" {
			t.Errorf("%s: %v", term.ID, err)
		}
		b, err := io.ReadAll(term)
		closed, _ := errors.AsType[*client.Closed](err)
		if string(b) != "$ " || (closed == nil) != (c.says == "") || closed != nil && closed.Reason != c.says || term.Exit != c.exit {
			t.Errorf("%s: %q, exit %d: %v", name, b, term.Exit, err)
		}
	}
	_, to := play(t, answers(http.StatusConflict, `{"error":{"type":"terminated","message":"it has ended"}}`))
	if _, err := to.OpenTerminal(t.Context(), id, client.TerminalOptions{}); !errors.Is(err, dormouse.ErrTerminated) {
		t.Errorf("%v", err)
	}
}
