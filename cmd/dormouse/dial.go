package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
)

// dial opens a WebSocket, and returns what the answer said in its header.
func (c *client) dial(ctx context.Context, path string) (*websocket.Conn, http.Header, error) {
	ws, res, err := websocket.Dial(ctx, c.base+path, &websocket.DialOptions{ //nolint:bodyclose // a WebSocket's answer has none to close
		HTTPClient: c.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + c.token}},
	})
	switch {
	case err != nil && res != nil && res.StatusCode >= http.StatusBadRequest:
		return nil, nil, readRefusal(res)
	case err != nil:
		return nil, nil, fmt.Errorf("no server answers at %s: %w", c.base, err)
	}
	const most = 4 << 20
	ws.SetReadLimit(most)
	return ws, res.Header, nil
}

// closedBy returns how the server closed a WebSocket, if it did.
func closedBy(err error) (websocket.CloseError, bool) {
	return errors.AsType[websocket.CloseError](err)
}
