package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/session/fleet"
)

const (
	dialTimeout = 2 * time.Second
	// handshakeTimeout bounds how long a server takes to prove its identity.
	handshakeTimeout = 5 * time.Second
	// maxHandshake bounds its answer.
	maxHandshake = maxHeaders + 16<<10
)

// routeKey is the key of the context value that says for which route a connection
// is made.
type routeKey struct{}

// dial connects to a server and authenticates it. No request is sent over a
// connection to another program, or to a server of another version. So a request to
// a server that is gone was certainly not carried out.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	r, ok := ctx.Value(routeKey{}).(fleet.Route)
	if !ok {
		return nil, fmt.Errorf("there is no route to %s: %w", addr, fleet.ErrUnreached)
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	conn, err := dialer.DialContext(ctx, network, r.To.Addr)
	if err != nil {
		return nil, err
	}
	left := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	err = c.handshake(conn, r)
	if !left() && err == nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errUnsigned) && c.warned.first(r.To.Incarnation) {
		c.log.WarnContext(ctx, "another server does not prove to be one of this store: it is of another version, or somebody else has its address",
			"server", r.To.Name, "address", r.To.Addr, "incarnation", r.To.Incarnation)
	}
	if err != nil { // whatever it was, nothing was asked
		return nil, errors.Join(fmt.Errorf("%w: handshake with %s: %s", fleet.ErrUnreached, r.To.Name, err.Error()), conn.Close())
	}
	return conn, conn.SetDeadline(time.Time{})
}

// handshake authenticates the server at the other end of a new connection.
func (c *Client) handshake(conn net.Conn, r fleet.Route) error {
	now, err := c.now()
	if err != nil {
		return err
	}
	body := []byte("{}")
	sig := sign(c.key, r.From.Incarnation, r.To.Incarnation, now, whoPath, body)
	req := &http.Request{ // without the context, whose trace is for the request that follows
		Method: http.MethodPost, URL: &url.URL{Path: whoPath}, Host: r.To.Addr, Header: headers(sig),
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxHandshake))
	res, err := http.ReadResponse(in, req)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsigned, err)
	}
	a, err := answerOf(c.key, res, sig)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", res.Status, err), res.Body.Close())
	}
	if a, err = a.unlessRefused(r); err != nil {
		return err
	}
	var who fleet.Server
	if err := a.decode(maxLine, &who); err != nil {
		return err
	}
	if who.Incarnation != r.To.Incarnation || in.Buffered() > 0 || res.Close {
		return fmt.Errorf("incarnation %d answers, and says too much or no more", who.Incarnation)
	}
	return nil
}

// warned is the incarnations that the log has a warning about already.
type warned struct {
	mu   sync.Mutex
	seen map[uint64]bool // guarded by mu
}

// maxWarned bounds how many are remembered.
const maxWarned = 1024

// first reports whether there was no warning about an incarnation yet.
func (t *warned) first(incarnation uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[incarnation] {
		return false
	}
	if t.seen == nil || len(t.seen) >= maxWarned {
		t.seen = make(map[uint64]bool)
	}
	t.seen[incarnation] = true
	return true
}
