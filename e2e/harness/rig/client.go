package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Client sends requests to whichever life of a server listens now.
type Client struct {
	// Patience is how long an answer may take, if not 0. After that the client repeats the
	// request, perhaps to another server.
	Patience time.Duration
	// Panics says that a server was armed to panic: an internal error then means no more
	// than a broken connection.
	Panics bool

	door door
	http *http.Client
}

// door chooses the server that a client asks, and is told which one did not answer.
type door interface {
	Live(ctx context.Context) (*Life, error)
	Blame(l *Life)
	Token() string
}

// Client returns a client of k's server.
func (k *Keeper) Client() *Client { return newClient(k) }

// Client returns a client that asks one server after the other.
func (f *Fleet) Client() *Client { return newClient(f) }

func newClient(d door) *Client {
	return &Client{door: d, http: &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 4,
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Refused returns the refusal that err is, or nil.
func Refused(err error) *client.Error {
	r, _ := errors.AsType[*client.Error](err)
	return r
}

// ErrCut means that the connection broke before the answer was there: the
// request may or may not have been carried out.
var ErrCut = errors.New("the request was cut off")

// Tar is a body that is a tar.
type Tar string

// at speaks to one life.
func (c *Client) at(l *Life) (*client.Client, error) {
	return client.New(client.Options{URL: "http://" + l.Addr(), Token: c.door.Token(), HTTP: c.http})
}

// Once sends one request to the life that listens now and reads its answer as
// JSON, or as it is if into is a string. It returns ErrCut if the server died
// under it.
func (c *Client) Once(ctx context.Context, method, path string, body, into any) (status int, err error) {
	l, err := c.door.Live(ctx)
	if err != nil {
		return 0, err
	}
	to, err := c.at(l)
	if err != nil {
		return 0, err
	}
	if tar, ok := body.(Tar); ok {
		body = client.Tar{Reader: strings.NewReader(string(tar)), Size: int64(len(tar))}
	}
	within := ctx
	if c.Patience > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, c.Patience)
		defer cancel()
	}
	res, err := to.Do(within, method, path, body)
	switch r := Refused(err); {
	case r != nil && c.Panics && r.Status == http.StatusInternalServerError:
		return r.Status, fmt.Errorf("%w: %s", ErrCut, r.Message)
	case r != nil:
		return r.Status, r
	case err != nil && ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		c.door.Blame(l)
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(b)
	default:
		if err := json.Unmarshal(b, into); err != nil {
			return res.StatusCode, fmt.Errorf("read the answer of %s: %w", path, err)
		}
	}
	return res.StatusCode, nil
}

// Get repeats a GET until it is answered, across any number of lives.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.Repeat(ctx, http.MethodGet, path, nil, into)
}

// Repeat repeats an idempotent request until it is answered. A server that is stopping, or
// does not know the outcome, is asked again.
func (c *Client) Repeat(ctx context.Context, method, path string, body, into any) error {
	for {
		_, err := c.Once(ctx, method, path, body, into)
		if !Again(err) {
			return err
		}
		if err := sleep.For(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// Missing reports whether the answer was that there is no such thing.
func Missing(err error) bool {
	r := Refused(err)
	return r != nil && r.Status == http.StatusNotFound
}

// Metrics reads what a life counts.
func (c *Client) Metrics(ctx context.Context, l *Life) (string, error) {
	to, err := c.at(l)
	if err != nil {
		return "", err
	}
	var raw []byte
	err = to.Call(client.KeepAnswer(ctx, &raw), http.MethodGet, "/metrics", nil, nil)
	return string(raw), err
}

// Again reports whether a request has no answer yet, so that a careful client
// sends it again.
func Again(err error) bool {
	if errors.Is(err, ErrCut) {
		return true
	}
	r := Refused(err)
	return r != nil && r.Status == http.StatusServiceUnavailable
}
