package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/visit"
)

// visitor reaches the sandboxes of sessions that are loaded on this server.
type visitor interface {
	ReachHere(ctx context.Context, e visit.Errand) (v *visit.Visit, err error)
}

const (
	askPath  = Prefix + "ask"
	openPath = Prefix + "open"

	// protocol is that of a connection once it carries a stream: sealed frames.
	protocol = "dormouse-stream"
	// maxFindings bounds the result of an errand.
	maxFindings = 8 << 20
)

// errNotReady is returned to a visitor whose sandbox takes too long to start.
var errNotReady = fmt.Errorf("the sandbox was not ready in time: %w", dormouse.ErrConflict)

// Ask has another server run an errand in a sandbox that it holds.
func (c *Client) Ask(ctx context.Context, r fleet.Route, e visit.Errand) (f visit.Findings, err error) {
	a, err := c.post(ctx, r, askPath, e)
	if err != nil {
		return f, err
	}
	return f, a.decode(maxFindings, &f)
}

// Open has another server open a stream, on a connection that carries nothing
// else from then on.
func (c *Client) Open(ctx context.Context, r fleet.Route, e visit.Errand) (visit.Conn, error) {
	a, err := c.post(ctx, r, openPath, e)
	if err != nil {
		return nil, err
	}
	body, ok := a.res.Body.(io.ReadWriteCloser)
	if a.res.StatusCode != http.StatusSwitchingProtocols || a.res.Header.Get("Upgrade") != protocol || !ok {
		return nil, errors.Join(fmt.Errorf("%w: %s carries no streams", fleet.ErrUnreached, r.To.Name), a.closeBody())
	}
	return newWire(body, a.proof.key(c.key, toAsker), a.proof.key(c.key, toAsked)), nil
}

// ask runs an errand for a visitor of another server.
func (s *Server) ask(a *answerer, r *http.Request, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(r.Context(), answerWithin, errNotReady)
	defer cancel()
	v, e, err := s.visit(ctx, body)
	if err != nil {
		return err
	}
	defer v.Close()
	f, err := v.Run(ctx, e)
	if err != nil {
		return err
	}
	return a.answer(http.StatusOK, f)
}

// visit reaches the sandbox that an errand is for.
func (s *Server) visit(ctx context.Context, body []byte) (*visit.Visit, visit.Errand, error) {
	e, err := decodeErrand(body)
	if err != nil {
		return nil, e, err
	}
	v, err := s.Sessions.ReachHere(ctx, e)
	return v, e, err
}

func decodeErrand(body []byte) (e visit.Errand, err error) {
	if err := decode(body, &e); err != nil {
		return e, fmt.Errorf("%w: %w", errForeign, err)
	}
	if e.Stream != nil {
		if err := e.Stream.Validate(); err != nil {
			return e, err
		}
	}
	return e, nil
}

// open carries a stream for a visitor of another server.
func (s *Server) open(a *answerer, r *http.Request, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(r.Context(), answerWithin, errNotReady)
	defer cancel()
	v, e, err := s.visit(ctx, body)
	if err != nil {
		return err
	}
	defer v.Close()
	if e.Stream == nil || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		return fmt.Errorf("there is no stream to open, or nobody to carry it: %w", dormouse.ErrInvalid)
	}
	inner, err := v.Open(ctx, *e.Stream)
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }()
	outer, err := a.upgrade()
	if err != nil {
		return err
	}
	defer func() { _ = outer.Close() }()
	defer context.AfterFunc(v.Life(), func() { _ = outer.Close() })()
	relayStream(outer, inner)
	return nil
}

// hijackedConn is the hijacked connection of a request.
type hijackedConn struct {
	net.Conn
	in io.Reader // begins with what was buffered after the request
}

func (t hijackedConn) Read(b []byte) (int, error) { return t.in.Read(b) }

// upgrade hijacks the connection of a request and answers that the protocol changes.
func (a *answerer) upgrade() (*wire, error) {
	c, buffered, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take the connection over: %w", err)
	}
	p := prove(a.key, a.to, a.by, http.StatusSwitchingProtocols)
	_, err = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", protocol, answerHeader, p.header())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("answer: %w", err), c.Close())
	}
	return newWire(hijackedConn{c, buffered.Reader}, p.key(a.key, toAsked), p.key(a.key, toAsker)), nil
}

// relayStream copies bytes both ways until both sides have ended, or the other
// server has left. What it sends after the sandbox has stopped reading is discarded,
// so that the last output of the sandbox is not lost.
func relayStream(outer *wire, inner visit.Conn) {
	var inward sync.WaitGroup
	inward.Go(func() {
		_, err := io.Copy(inner, outer)
		if err != nil {
			_, err = io.Copy(io.Discard, outer)
		}
		if err == nil {
			_ = inner.CloseWrite()
			outer.awaitClose()
		}
		_ = inner.Close()
	})
	if _, err := io.Copy(outer, inner); err == nil {
		_ = outer.CloseWrite()
	} else {
		_ = outer.Close() // it was cut off, and must not look complete
	}
	inward.Wait()
}
