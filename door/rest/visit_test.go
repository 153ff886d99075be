//go:build linux

package rest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
)

// dial opens a WebSocket, and returns the header of the answer. It ends with the
// test.
func (h *testServer) dial(path string) (*websocket.Conn, http.Header) {
	h.t.Helper()
	ws, res, err := websocket.Dial(h.t.Context(), h.url+path, &websocket.DialOptions{ //nolint:bodyclose // a WebSocket's answer has none
		HTTPClient: h.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + h.token}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = ws.CloseNow() })
	ws.SetReadLimit(1 << 20)
	return ws, res.Header
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// shown reads binary frames until they have shown want.
func shown(t *testing.T, ws *websocket.Conn, want string) {
	t.Helper()
	var seen []byte
	for !bytes.Contains(seen, []byte(want)) {
		kind, b, err := ws.Read(within(t))
		if err != nil || kind != websocket.MessageBinary {
			t.Fatalf("%q instead of %q, %v, %v", seen, want, kind, err)
		}
		seen = append(seen, b...)
	}
}

func say(t *testing.T, ws *websocket.Conn, kind websocket.MessageType, text string) {
	t.Helper()
	if err := ws.Write(within(t), kind, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// closed reads to the end of a WebSocket and returns how it was closed.
func closed(t *testing.T, ws *websocket.Conn) websocket.CloseError {
	t.Helper()
	for {
		_, _, err := ws.Read(within(t))
		var end websocket.CloseError
		switch {
		case err == nil:
		case errors.As(err, &end):
			return end
		default:
			t.Fatalf("it ended with %v", err)
		}
	}
}

func questionText(command ...string) string { return url.Values{"command": command}.Encode() }

func TestATerminalIsAWebSocket(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{"warm":false}`)
	ws, header := h.dial(path + "/terminal?rows=30&cols=100&" + questionText("sh", "-c", "stty size; read x; stty size; echo got $x; read x; exit 7"))
	id := header.Get(rest.TerminalID)
	shown(t, ws, "30 100")
	say(t, ws, websocket.MessageText, `{"resize":{"rows":40,"cols":120}}`)
	say(t, ws, websocket.MessageBinary, "word\n")
	shown(t, ws, "40 120\r\ngot word\r\n")

	// It outlives its viewers, and shows the next one its screen.
	_ = ws.CloseNow()
	var all rest.Terminals
	h.call(http.MethodGet, path+"/terminals", "", http.StatusOK, &all)
	if len(all.Terminals) != 1 || all.Terminals[0].ID != id || all.Terminals[0].Exit != nil || all.Terminals[0].Rows != 40 {
		t.Errorf("terminals: %+v", all)
	}
	ws, _ = h.dial(path + "/terminal?id=" + id)
	shown(t, ws, "got word")
	say(t, ws, websocket.MessageBinary, "\n")
	if end := closed(t, ws); end.Code != websocket.StatusNormalClosure || end.Reason != `{"exit":7}` {
		t.Errorf("closed with %v", end)
	}
}

func TestATerminalSaysWhyItIsNoLongerShown(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{}`)
	up := "/terminal?" + questionText("sh", "-c", "echo up; read x")
	for name, c := range map[string]struct {
		end  func(ws *websocket.Conn, id string)
		code websocket.StatusCode
		says string
	}{
		"it is ended": {func(_ *websocket.Conn, id string) {
			h.call(http.MethodDelete, path+"/terminals/"+id, "", http.StatusNoContent, nil)
		}, websocket.StatusNormalClosure, `{"exit":`},
		"hibernation": {func(*websocket.Conn, string) {
			h.call(http.MethodPost, path+"/hibernate", "", http.StatusOK, nil)
		}, websocket.StatusGoingAway, "being stopped"},
		"nonsense": {func(ws *websocket.Conn, _ string) {
			say(t, ws, websocket.MessageText, `{"resize":{"rows":0,"cols":1}}`)
		}, websocket.StatusPolicyViolation, "frame not understood"},
		"unknown words": {func(ws *websocket.Conn, _ string) {
			say(t, ws, websocket.MessageText, `{"levitate":1}`)
		}, websocket.StatusPolicyViolation, "frame not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			ws, header := h.dial(path + up)
			shown(t, ws, "up")
			c.end(ws, header.Get(rest.TerminalID))
			if end := closed(t, ws); end.Code != c.code || !strings.Contains(end.Reason, c.says) {
				t.Errorf("closed with %v", end)
			}
		})
	}
	ws, _ := h.dial(path + up)
	shown(t, ws, "up")
	h.sessions.EndFollowers()
	if end := closed(t, ws); end.Code != websocket.StatusServiceRestart {
		t.Errorf("closed with %v", end)
	}
}

// A client that does not read must not hold the terminal up for ever.
func TestATerminalCutsOffWhoDoesNotRead(t *testing.T) {
	h := newServerOn(t, localtest.Open(t), func(c *rest.Config) { c.WriteTimeout = 100 * time.Millisecond })
	path := h.create(`{}`)
	_, header := h.dial(path + "/terminal?" + questionText("sh", "-c", "while :; do echo a lot of words; done"))
	id := header.Get(rest.TerminalID)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var all rest.Terminals
		h.call(http.MethodGet, path+"/terminals", "", http.StatusOK, &all)
		if len(all.Terminals) == 1 && all.Terminals[0].Attached == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still attached: %+v", all)
		}
	}
	h.call(http.MethodDelete, path+"/terminals/"+id, "", http.StatusNoContent, nil)
}

func TestAPortIsAWebSocketWithTwoEnds(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{}`)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a local sandbox has the ports of its machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(b))
			_ = c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	ws, _ := h.dial(fmt.Sprintf("%s/ports/%d/stream", path, port))
	say(t, ws, websocket.MessageBinary, "hel")
	say(t, ws, websocket.MessageBinary, "lo")
	say(t, ws, websocket.MessageBinary, "")
	shown(t, ws, "HELLO")
	if _, b, err := ws.Read(within(t)); err != nil || len(b) != 0 {
		t.Errorf("after the end came %q, %v", b, err)
	}
	if end := closed(t, ws); end.Code != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", end)
	}
	var all rest.Ports
	h.call(http.MethodGet, path+"/ports", "", http.StatusOK, &all)
	ws, _ = h.dial(fmt.Sprintf("%s/ports/%d/stream", path, port))
	say(t, ws, websocket.MessageText, "words")
	if end := closed(t, ws); end.Code != websocket.StatusPolicyViolation {
		t.Errorf("closed with %v", end)
	}
	_ = l.Close()
	if status, b := h.upgrade(fmt.Sprintf("%s/ports/%d/stream", path, port)); status != http.StatusNotFound {
		t.Errorf("a port that nobody listens on: %d %s", status, b)
	}
}

// upgrade asks for a WebSocket that is to be refused.
func (h *testServer) upgrade(path string) (int, []byte) {
	h.t.Helper()
	r := h.request(http.MethodGet, path, nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		r.Header.Set(name, value)
	}
	return h.do(r)
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFilesGoInAndOutAsATar(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{"warm":false}`)
	large := strings.Repeat("0123456789abcdef", 1<<17)
	put := h.request(http.MethodPut, path+"/files?path=dir", bytes.NewReader(archive(t, map[string]string{"a/one": "1", "large": large})))
	put.ContentLength = -1 // of unknown length
	status, b := h.do(put)
	var there struct{ Files, Bytes int }
	if err := json.Unmarshal(b, &there); status != http.StatusOK || err != nil || there.Bytes != len(large)+1 {
		t.Fatalf("put: %d %s, %v", status, b, err)
	}
	res, err := h.http.Do(h.request(http.MethodGet, path+"/files?path=dir", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := make(map[string]string)
	whole, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("get: %s, %v", res.Status, err)
	}
	for r := tar.NewReader(bytes.NewReader(whole)); ; {
		f, err := r.Next()
		if err != nil {
			break
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name] = string(content)
	}
	if got["a/one"] != "1" || got["large"] != large {
		t.Errorf("got %d files", len(got))
	}
	if s := res.Trailer.Get(rest.TreeStatus); !strings.Contains(s, fmt.Sprintf(`"bytes":%d`, len(large)+1)) {
		t.Errorf("the trailer says %q", s)
	}
}

func TestFilesThatAreNotWholeAreNotCalledSo(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{}`)
	whole := archive(t, map[string]string{"large": strings.Repeat("x", 4<<20)})
	for name, c := range map[string]struct {
		body io.Reader
		want int
		says string
	}{
		"no tar":           {strings.NewReader(strings.Repeat("no tar", 1000)), http.StatusBadRequest, "refused"},
		"a tar that stops": {bytes.NewReader(whole[:1<<20]), http.StatusBadRequest, "refused"},
		"a way out":        {bytes.NewReader(archive(t, map[string]string{"../../out": "x"})), http.StatusBadRequest, "refused"},
	} {
		status, b := h.do(h.request(http.MethodPut, path+"/files?path=dir", c.body))
		if status != c.want || !strings.Contains(string(b), c.says) {
			t.Errorf("%s: %d %s", name, status, b)
		}
	}
	for query, want := range map[string]int{"": 400, "?path=nowhere": 404, "?path=dir&mode=1": 400, "?path=.&wake=perhaps": 400} {
		if status, b := h.do(h.request(http.MethodGet, path+"/files"+query, nil)); status != want {
			t.Errorf("%q: %d %s", query, status, b)
		}
	}

	// What goes wrong on the way cuts the answer off.
	ws, _ := h.dial(path + "/terminal?" + questionText("sh", "-c", "truncate -s 1G sparse; echo made; read x"))
	shown(t, ws, "made")
	res, err := h.http.Do(h.request(http.MethodGet, path+"/files?path=sparse", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	h.call(http.MethodPost, path+"/hibernate", "", http.StatusOK, nil)
	if n, err := io.Copy(io.Discard, res.Body); err == nil || res.Trailer.Get(rest.TreeStatus) != "" {
		t.Errorf("%d bytes more, and whole", n)
	}
}

func TestProcessesAreCountedAndNothingIsWoken(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{"warm":false}`)
	var p rest.Processes
	h.call(http.MethodGet, path+"/processes", "", http.StatusOK, &p)
	if p.Usage != nil || p.Sandbox.Phase != "cold" || p.Phase != dormouse.PhaseReady {
		t.Errorf("cold: %+v", p)
	}
	for _, below := range []string{"/ports", "/terminals"} {
		h.call(http.MethodGet, path+below, "", http.StatusConflict, nil)
	}
	if status, b := h.upgrade(path + "/terminal?wake=false"); status != http.StatusConflict || !strings.Contains(string(b), "wake it first") {
		t.Errorf("a terminal that may not wake: %d %s", status, b)
	}
	ws, _ := h.dial(path + "/terminal?" + questionText("sh", "-c", "echo up; read x"))
	shown(t, ws, "up")
	h.call(http.MethodGet, path+"/processes", "", http.StatusOK, &p)
	if p.Usage == nil || p.Usage.Processes != 1 || p.Usage.Terminals != 1 || p.Usage.Memory == 0 || p.Sandbox.Generation != 1 || p.Session == "" {
		t.Errorf("active: %+v, %+v", p, p.Usage)
	}
}

func TestWhatIsNoWebSocketWakesNothing(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	for _, below := range []string{"/terminal", "/ports/80/stream"} {
		if status, b := h.do(h.request(http.MethodGet, path+below, nil)); status != http.StatusUpgradeRequired {
			t.Errorf("%s: %d %s", below, status, b)
		}
	}
	for below, want := range map[string]int{
		"/terminal?rows=-1": 400, "/terminal?cols=70000": 400, "/terminal?id=a%20b": 400, "/terminal?size=1": 400,
		"/ports/0/stream": 400, "/ports/65536/stream": 400, "/ports/http/stream": 400,
	} {
		if status, b := h.upgrade(path + below); status != want {
			t.Errorf("%s: %d %s", below, status, b)
		}
	}
	if s := h.show(path); s.Sandbox.Generation != 0 {
		t.Errorf("there is a sandbox: %+v", s.Sandbox)
	}
	// Sandboxes that cannot be visited say so.
	if status, b := h.upgrade(path + "/terminal"); status != http.StatusConflict || !strings.Contains(string(b), "visited") {
		t.Errorf("%d %s", status, b)
	}
	if status, b := h.upgrade("/api/sessions/sesn_none/terminal"); status != http.StatusNotFound {
		t.Errorf("%d %s", status, b)
	}
	r := h.request(http.MethodGet, path+"/terminal", nil)
	r.Header.Set("Origin", "http://elsewhere.example")
	if status, b := h.do(r); status != http.StatusForbidden {
		t.Errorf("another origin: %d %s", status, b)
	}
}
