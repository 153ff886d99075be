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
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session"
)

// Client asks other servers. It keeps its connections.
type Client struct {
	key  []byte
	http *http.Client
}

var _ session.Peers = (*Client)(nil)

// NewClient returns a client that signs with the store's key.
func NewClient(key []byte) *Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return &Client{key: key, http: &http.Client{
		Transport: &http.Transport{ // without a proxy: servers reach each other directly
			DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close lets go of the connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do asks the actor of a session on another server.
func (c *Client) Do(ctx context.Context, r session.Route, id dormouse.SessionID, by dormouse.Actor, v session.Verb) error {
	name, args, err := encodeVerb(v)
	if err != nil {
		return err
	}
	res, err := c.post(ctx, r, doPath, do{Session: id, By: by, Verb: name, Args: args})
	if err != nil {
		return err
	}
	var was done
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxLine)) // all of it, so that the connection can be used again
	if decode(b, &was) == nil && was.Repeated {
		err = session.ErrRepeated
	}
	return errors.Join(err, res.Body.Close())
}

// Who asks who answers at an address.
func (c *Client) Who(ctx context.Context, r session.Route) (who session.Server, err error) {
	res, err := c.post(ctx, r, whoPath, struct{}{})
	if err != nil {
		return who, err
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxLine))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return who, fmt.Errorf("read answer: %w", err)
	}
	return who, decode(b, &who)
}

// Follow hands on what another server streams, until it ends.
func (c *Client) Follow(ctx context.Context, r session.Route, id dormouse.SessionID, after uint64, each func(session.Relayed)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silent := time.AfterFunc(silence, func() { stop(fmt.Errorf("%w: it fell silent", session.ErrUnreached)) })
	defer silent.Stop()
	res, err := c.post(ctx, r, followPath, follow{Session: id, After: after})
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewScanner(res.Body)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	for in.Scan() {
		silent.Reset(silence)
		l, err := decodeLine(in.Bytes())
		switch {
		case err != nil:
			return fmt.Errorf("follow on %s: %w", r.To.Name, err)
		case l.End != nil:
			return l.End.error(r.To)
		case l.Relayed != session.Relayed{}:
			each(l.Relayed)
		}
	}
	if err := in.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow on %s: %w", r.To.Name, err)
	}
	return context.Cause(ctx)
}

// post sends a signed request and returns an answer that is not a refusal. Its
// body is the caller's.
func (c *Client) post(ctx context.Context, r session.Route, path string, v any) (*http.Response, error) {
	body, err := encode(v)
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}), http.MethodPost, "http://"+r.To.Addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrUnreached, err)
	}
	req.Header.Set("Authorization", sign(c.key, r.From.Incarnation, r.To.Incarnation, path, body).header())
	req.Header.Set("Content-Type", "application/json")
	if path == openPath {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
	}
	res, err := c.http.Do(req)
	if err != nil {
		doubt := session.ErrUnreached
		if sent.Load() {
			doubt = dormouse.ErrUnknownOutcome
		}
		return nil, fmt.Errorf("ask %s: %w: %w", r.To.Name, doubt, err)
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusSwitchingProtocols {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	var why refusal
	b, err := io.ReadAll(io.LimitReader(res.Body, maxLine))
	if err == nil {
		err = decode(b, &why)
	}
	switch {
	case err != nil && res.StatusCode < http.StatusInternalServerError:
		return nil, fmt.Errorf("%w: whoever answers at %s is not one of us: %s", session.ErrUnreached, r.To.Addr, res.Status)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %s: %w", r.To.Name, res.Status, dormouse.ErrUnknownOutcome)
	}
	return nil, why.error(r.To)
}

// error is the error that a server told.
func (r refusal) error(by session.Server) error {
	switch r.Type {
	case notMe:
		return fmt.Errorf("%w: %s", session.ErrUnreached, r.Message)
	case "unauthorized":
		return fmt.Errorf("%w: %s does not know our key", session.ErrUnreached, by.Name)
	case otherRequest:
		return fmt.Errorf("%s: %w", by.Name, session.ErrOtherRequest)
	case "client_left":
		return fmt.Errorf("%s stopped waiting: %w", by.Name, dormouse.ErrUnknownOutcome)
	}
	return door.Told(r.Type, r.Message)
}
