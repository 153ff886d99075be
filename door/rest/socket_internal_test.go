package rest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// ended is a stream whose far end has printed something and closed: it takes nothing
// any more, and what was printed is still to be read.
type ended struct {
	refused chan struct{} // closed once it has refused what a client said
	printed []byte
}

func (e *ended) Read(b []byte) (int, error) {
	<-e.refused
	time.Sleep(50 * time.Millisecond) // a request that gives up has done so by now
	if len(e.printed) == 0 {
		return 0, io.EOF
	}
	n := copy(b, e.printed)
	e.printed = e.printed[n:]
	return n, nil
}

func (e *ended) Write([]byte) (int, error) {
	close(e.refused)
	return 0, syscall.EPIPE
}

func (e *ended) CloseWrite() error { return syscall.EPIPE }

func (e *ended) Close() error { e.printed = nil; return nil }

// A person that types while the command ends sees what it has printed: the last output
// of a shell comes after the end of its input, when the runner may not read input any
// more.
func TestTypingAtAStreamThatHasEndedLosesNoOutput(t *testing.T) {
	for name, halves := range map[string]bool{"a terminal": false, "a port": true} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ws, err := websocket.Accept(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				k := &socket{Conn: ws, conn: &ended{refused: make(chan struct{}), printed: []byte("last words")}, within: time.Minute, halves: halves}
				k.carry(r.Context(), time.Minute, func(cause error) (websocket.StatusCode, string) {
					return websocket.StatusNormalClosure, cause.Error()
				})
			}))
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ws, _, err := websocket.Dial(ctx, s.URL, nil) //nolint:bodyclose // a WebSocket's answer has none to close
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ws.CloseNow() }()
			if err := ws.Write(ctx, websocket.MessageBinary, []byte("\x04")); err != nil {
				t.Fatal(err)
			}
			var shown []byte
			for {
				_, b, err := ws.Read(ctx)
				shown = append(shown, b...)
				if err == nil {
					continue
				}
				if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
					t.Errorf("it ended with %v", err)
				}
				break
			}
			if string(shown) != "last words" {
				t.Errorf("shown is %q", shown)
			}
		})
	}
}
