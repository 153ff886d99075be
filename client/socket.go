package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// Closed is the error of a connection into a sandbox that the server closed early.
type Closed struct{ Reason string }

func (c *Closed) Error() string { return c.Reason }

// socket carries bytes over a WebSocket.
type socket struct {
	ws     *websocket.Conn
	read   func() (websocket.MessageType, []byte, error)
	write  func(websocket.MessageType, []byte) error
	left   []byte // received and not read yet
	header http.Header
	// halves says that an empty frame closes one direction only.
	halves bool
	end    error // what Read returns once the connection is over
	reason string
}

// dial opens a WebSocket. It is closed when ctx ends.
func (c *Client) dial(ctx context.Context, path string) (*socket, error) {
	at, err := c.locate(ctx)
	if err != nil {
		return nil, err
	}
	ws, res, err := websocket.Dial(ctx, at.URL+path, &websocket.DialOptions{ //nolint:bodyclose // a WebSocket's answer has none to close
		HTTPClient: c.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + at.Token}},
	})
	switch {
	case err != nil && res != nil && res.StatusCode >= http.StatusMultipleChoices:
		return nil, readError(res)
	case err != nil:
		return nil, unanswered(at, err)
	}
	const most = 4 << 20
	ws.SetReadLimit(most)
	return &socket{
		ws: ws, header: res.Header,
		read:  func() (websocket.MessageType, []byte, error) { return ws.Read(ctx) },
		write: func(kind websocket.MessageType, b []byte) error { return ws.Write(ctx, kind, b) },
	}, nil
}

// Read reads what comes out of the sandbox.
func (s *socket) Read(b []byte) (int, error) {
	for len(s.left) == 0 {
		if s.end != nil {
			return 0, s.end
		}
		kind, got, err := s.read()
		closed, byServer := errors.AsType[websocket.CloseError](err)
		switch {
		case byServer && closed.Code == websocket.StatusNormalClosure:
			s.end, s.reason = io.EOF, closed.Reason
		case byServer:
			s.end = &Closed{closed.Reason}
		case err != nil:
			s.end = fmt.Errorf("the connection was lost: %w", err)
		case kind != websocket.MessageBinary:
		case len(got) == 0 && s.halves:
			return 0, io.EOF
		default:
			s.left = got
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

// Write sends bytes into the sandbox.
func (s *socket) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil // an empty frame would close this direction
	}
	if err := s.write(websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close closes the connection at once.
func (s *socket) Close() error { return s.ws.CloseNow() }
