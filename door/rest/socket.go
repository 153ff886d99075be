package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/visit"
)

const (
	// maxFrame bounds a frame of a client, maxText one that is text.
	maxFrame = 1 << 20
	maxText  = 4 << 10
	// readSize is how much is read from the sandbox, and sent to a client, at once.
	readSize = 32 << 10
	// longestReason is what fits into the frame that closes a WebSocket.
	longestReason = 123
)

// wantsSocket refuses a request for a WebSocket that is none, before anything is
// done for it.
func wantsSocket(r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-WebSocket-Version") != "13" {
		return &door.Refusal{Status: http.StatusUpgradeRequired, Type: "upgrade_required", Message: "this route is a WebSocket, version 13"}
	}
	return nil
}

// socket is a WebSocket that carries a stream: binary frames are its bytes.
type socket struct {
	*websocket.Conn
	conn   visit.Conn
	within time.Duration // how long a client may take to read what it is sent
	// text handles a text frame; nil refuses them.
	text func([]byte) error
	// halves says that an empty binary frame closes one direction and not the other.
	halves  bool
	half    func() // called when one direction has ended
	ended   atomic.Int32
	reading atomic.Bool
}

var (
	// errLeft means that the client has left, errSlow that it does not read.
	errLeft = errors.New("the client left")
	errSlow = errors.New("the client does not read what it is sent")
	// errFrame means that a frame was not understood.
	errFrame = errors.New("frame not understood")
)

// accept answers a request for a WebSocket. From then on errors are sent in the frame
// that closes it.
func (s *Server) accept(c call, conn visit.Conn) (*socket, error) {
	c.Status, c.Stream = http.StatusSwitchingProtocols, true
	ws, err := websocket.Accept(c.W, c.R, nil)
	if err != nil {
		c.Status = http.StatusBadRequest // and has said so
		return nil, fmt.Errorf("accept a WebSocket: %w: %w", dormouse.ErrInvalid, err)
	}
	ws.SetReadLimit(maxFrame)
	return &socket{Conn: ws, conn: conn, within: s.WriteTimeout}, nil
}

// carry copies bytes both ways until the stream ends, the client leaves or life ends.
// Then it closes the WebSocket with the status and reason that end returns; io.EOF is
// the stream's own end.
func (k *socket) carry(life context.Context, beat time.Duration, end func(error) (websocket.StatusCode, string)) {
	// Reading from a WebSocket under a context that ends closes it without a word.
	reading := context.WithoutCancel(life)
	ctx, stop := context.WithCancelCause(life)
	k.half = func() {
		if k.ended.Add(1) == 2 {
			stop(io.EOF)
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.outward(reading); err != nil {
			stop(err)
		}
	})
	running.Go(func() { stop(k.inward(reading)) })
	running.Go(func() { k.heartbeat(ctx, beat, stop) })
	<-ctx.Done()
	_ = k.conn.Close()
	if cause := context.Cause(ctx); errors.Is(cause, errLeft) || errors.Is(cause, errSlow) {
		_ = k.CloseNow()
	} else {
		code, reason := end(cause)
		_ = k.Close(code, strings.ToValidUTF8(reason[:min(len(reason), longestReason)], ""))
	}
	running.Wait()
}

// outward copies from the stream to the client.
func (k *socket) outward(ctx context.Context) error {
	buf := make([]byte, readSize)
	for {
		n, err := k.conn.Read(buf)
		if n > 0 {
			if err := k.send(ctx, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && k.halves:
			defer k.half()
			return k.send(ctx, nil)
		case err != nil:
			return err
		}
	}
}

func (k *socket) send(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, k.within)
	defer cancel()
	if err := k.Write(ctx, websocket.MessageBinary, b); err != nil {
		if ctx.Err() != nil {
			return errSlow
		}
		return errLeft
	}
	return nil
}

// inward copies from the client to the stream. A client that has closed its direction
// is still read from, to notice that it leaves. So is one that speaks to a stream which
// takes no more: what was printed before may not have been read yet, and outward ends
// when it was.
func (k *socket) inward(ctx context.Context) error {
	said, refused := false, false
	for {
		k.reading.Store(true)
		kind, b, err := k.Read(ctx)
		k.reading.Store(false)
		switch {
		case websocket.CloseStatus(err) == -1 && errors.Is(err, websocket.ErrMessageTooBig):
			return fmt.Errorf("%w: it is over %d bytes", errFrame, maxFrame)
		case err != nil:
			return errLeft
		case kind == websocket.MessageText && (k.text == nil || len(b) > maxText):
			return fmt.Errorf("%w: no such text is expected here", errFrame)
		case kind == websocket.MessageText:
			err = k.text(b)
		case len(b) == 0 && k.halves && !said && !refused:
			said = true
			err = k.conn.CloseWrite()
			k.half()
		case len(b) > 0 && said:
			return fmt.Errorf("%w: there is more after the end", errFrame)
		case refused:
		default:
			if _, lost := k.conn.Write(b); lost != nil {
				refused = true
				k.half()
			}
		}
		if err != nil {
			return err
		}
	}
}

// heartbeat pings the client to find out whether it has left. While the sandbox does
// not read, no pong can be read either, and the client is left alone.
func (k *socket) heartbeat(ctx context.Context, every time.Duration, stop context.CancelCauseFunc) {
	for t := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		asking, cancel := context.WithTimeout(ctx, k.within)
		err := k.Ping(asking)
		cancel()
		if err != nil && k.reading.Load() {
			stop(errLeft)
		}
	}
}

// closeReason is how a WebSocket is closed when its stream did not end by itself.
func closeReason(err error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(err, errFrame):
		return websocket.StatusPolicyViolation, err.Error()
	case errors.Is(err, dormouse.ErrClosing):
		return websocket.StatusServiceRestart, err.Error()
	}
	return websocket.StatusGoingAway, door.ReplyTo(err).Message
}
