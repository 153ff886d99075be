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
	dialWithin = 2 * time.Second
	// meetWithin bounds how long a server takes to say who it is.
	meetWithin = 5 * time.Second
	// maxMeeting bounds what it says.
	maxMeeting = maxHeaders + 16<<10
)

// routeKey is where a context says for which route a connection is made.
type routeKey struct{}

// dial makes a connection to a server and has it say who it is. Nothing is asked
// over a connection to somebody else, or to a server of another version, so that
// what was meant for one that is not there was surely not done.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	r, ok := ctx.Value(routeKey{}).(fleet.Route)
	if !ok {
		return nil, fmt.Errorf("there is no route to %s: %w", addr, fleet.ErrUnreached)
	}
	dialer := &net.Dialer{Timeout: dialWithin, KeepAlive: 15 * time.Second}
	conn, err := dialer.DialContext(ctx, network, r.To.Addr)
	if err != nil {
		return nil, err
	}
	left := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(meetWithin))
	err = c.meet(conn, r)
	if !left() && err == nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errUnsigned) && c.told.first(r.To.Incarnation) {
		c.log.WarnContext(ctx, "another server does not prove to be one of this store: it is of another version, or somebody else has its address",
			"server", r.To.Name, "address", r.To.Addr, "incarnation", r.To.Incarnation)
	}
	if err != nil { // whatever it was, nothing was asked
		return nil, errors.Join(fmt.Errorf("%w: meet %s: %s", fleet.ErrUnreached, r.To.Name, err.Error()), conn.Close())
	}
	return conn, conn.SetDeadline(time.Time{})
}

// meet asks over a new connection who is there.
func (c *Client) meet(conn net.Conn, r fleet.Route) error {
	now, err := c.now()
	if err != nil {
		return err
	}
	body := []byte("{}")
	sig := sign(c.key, r.From.Incarnation, r.To.Incarnation, now, whoPath, body)
	req := &http.Request{ // without the context, whose trace is about what is asked then
		Method: http.MethodPost, URL: &url.URL{Path: whoPath}, Host: r.To.Addr, Header: headers(sig),
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxMeeting))
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

// told is the servers about which the log was told already. A new life of one is
// told about anew.
type told struct {
	mu   sync.Mutex
	seen map[uint64]bool // guarded by mu
}

// manyTold bounds the servers that are remembered.
const manyTold = 1024

func (t *told) first(incarnation uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[incarnation] {
		return false
	}
	if t.seen == nil || len(t.seen) >= manyTold {
		t.seen = make(map[uint64]bool)
	}
	t.seen[incarnation] = true
	return true
}
