package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

// Client asks other servers. It keeps its connections.
type Client struct {
	key    []byte
	now    func() (time.Time, error)
	log    *slog.Logger
	http   *http.Client
	warned warned
}

var _ fleet.Peers = (*Client)(nil)

// maxHeaders bounds the head of an answer.
const maxHeaders = 16 << 10

// NewClient returns a client that signs with the store's key, and with the time
// by the database's clock. Without a time nothing is asked.
func NewClient(key []byte, now func() (time.Time, error), log *slog.Logger) *Client {
	c := &Client{key: key, now: now, log: log}
	c.http = &http.Client{
		Transport: &http.Transport{ // without a proxy: servers reach each other directly
			DialContext: c.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do asks the actor of a session on another server.
func (c *Client) Do(ctx context.Context, r fleet.Route, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	name, args, err := encodeVerb(v)
	if err != nil {
		return err
	}
	a, err := c.post(ctx, r, doPath, do{Session: id, By: by, Verb: name, Args: args})
	if err != nil {
		return err
	}
	var was done
	if err := a.decode(maxLine, &was); err != nil {
		return err
	}
	if was.Repeated {
		return law.ErrRepeated
	}
	return nil
}

// Who asks which server answers at an address, and verifies that it is the one that
// was meant.
func (c *Client) Who(ctx context.Context, r fleet.Route) (who fleet.Server, err error) {
	a, err := c.post(ctx, r, whoPath, struct{}{})
	if err != nil {
		return who, err
	}
	return who, a.decode(maxLine, &who)
}

// Follow hands on what another server streams, until it ends.
func (c *Client) Follow(ctx context.Context, r fleet.Route, id dormouse.SessionID, after uint64, each func(feed.Relayed)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silent := time.AfterFunc(heartbeatTimeout, func() { stop(fmt.Errorf("%w: it fell silent", fleet.ErrUnreached)) })
	defer silent.Stop()
	a, err := c.post(ctx, r, followPath, follow{Session: id, After: after})
	if err != nil {
		return err
	}
	defer func() { _ = a.closeBody() }()
	in := bufio.NewScanner(a.body)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	for in.Scan() {
		silent.Reset(heartbeatTimeout)
		l, err := decodeLine(in.Bytes())
		switch {
		case err != nil:
			return fmt.Errorf("follow on %s: %w", r.To.Name, err)
		case l.End != nil:
			return l.End.asError(r.To)
		case l.Relayed != feed.Relayed{}:
			each(l.Relayed)
		}
	}
	if err := in.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow on %s: %w", r.To.Name, err)
	}
	return context.Cause(ctx)
}

// answer is an answer whose signature was verified.
type answer struct {
	res   *http.Response
	proof proof
	body  io.Reader // opened
}

// answerOf verifies that a response is the answer to a request.
func answerOf(key []byte, res *http.Response, to signature) (*answer, error) {
	p, err := proofOf(key, res.Header, to, res.StatusCode)
	if err != nil {
		return nil, err
	}
	return &answer{res: res, proof: p, body: newOpener(res.Body, p.key(key, toAsker))}, nil
}

func (a *answer) closeBody() error { return a.res.Body.Close() }

// decode reads all of an answer of at most limit bytes, so that the connection can
// be used again. One that was changed or cut off is an error.
func (a *answer) decode(limit int64, v any) error {
	b, err := io.ReadAll(io.LimitReader(a.body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	if err == nil {
		err = decode(b, v)
		_, _ = io.CopyN(io.Discard, a.res.Body, 1) // the end of the message
	}
	if err = errors.Join(err, a.closeBody()); err != nil {
		return fmt.Errorf("read answer: %w: %s", dormouse.ErrUnknownOutcome, err.Error())
	}
	return nil
}

// post sends a signed request and returns an answer that is not a refusal. It is
// the caller's to close.
func (c *Client) post(ctx context.Context, r fleet.Route, path string, v any) (*answer, error) {
	body, err := encode(v)
	if err != nil {
		return nil, err
	}
	now, err := c.now()
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", r.To.Name, err)
	}
	var sent atomic.Bool
	sig := sign(c.key, r.From.Incarnation, r.To.Incarnation, now, path, body)
	// Connections are pooled by incarnation and not by address: each was made to the
	// incarnation that is asked over it.
	host := strconv.FormatUint(r.To.Incarnation, 10)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.WithValue(ctx, routeKey{}, r), &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}), http.MethodPost, "http://"+host+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fleet.ErrUnreached, err)
	}
	req.Host, req.Header = r.To.Addr, headers(sig)
	if path == openPath {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
	}
	res, err := c.http.Do(req)
	if err != nil {
		doubt := fleet.ErrUnreached
		if sent.Load() {
			doubt = dormouse.ErrUnknownOutcome
		}
		return nil, fmt.Errorf("ask %s: %w: %w", r.To.Name, doubt, err)
	}
	a, err := answerOf(c.key, res, sig)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask %s: %w: %s: %w", r.To.Name, dormouse.ErrUnknownOutcome, res.Status, err), res.Body.Close())
	}
	return a.unlessRefused(r)
}

// headers is the headers of a signed request.
func headers(sig signature) http.Header {
	return http.Header{"Authorization": {sig.header()}, "Content-Type": {"application/json"}}
}

// unlessRefused returns the answer if it is not a refusal. What another server
// than the one that was asked says about it decides nothing.
func (a *answer) unlessRefused(r fleet.Route) (*answer, error) {
	itself := a.proof.by == r.To.Incarnation
	if status := a.res.StatusCode; itself && (status == http.StatusOK || status == http.StatusSwitchingProtocols) {
		return a, nil
	}
	var why refusal
	if err := a.decode(maxLine, &why); err != nil {
		return nil, fmt.Errorf("ask %s: %w", r.To.Name, err)
	}
	if !itself {
		return nil, fmt.Errorf("ask %s: %w: incarnation %d answers there: %s", r.To.Name, dormouse.ErrUnknownOutcome, a.proof.by, why.Message)
	}
	return nil, why.asError(r.To)
}

// asError is the error that another server sent.
func (r refusal) asError(by fleet.Server) error {
	switch r.Type {
	case notMe:
		return fmt.Errorf("%w: %s", fleet.ErrUnreached, r.Message)
	case inDoubt:
		return fmt.Errorf("%s refused: %s: %w", by.Name, r.Message, dormouse.ErrUnknownOutcome)
	case staleSender:
		return fmt.Errorf("%s: %w", by.Name, fleet.ErrStaleSender)
	case otherRequest:
		return fmt.Errorf("%s: %w", by.Name, law.ErrOtherRequest)
	case "client_left":
		return fmt.Errorf("%s stopped waiting: %w", by.Name, dormouse.ErrUnknownOutcome)
	}
	return door.RemoteError(r.Type, r.Message)
}
