package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"
)

// Client speaks to whichever life of a server listens now.
type Client struct {
	// Patience is how long an answer may take, if not 0. Who has waited that long
	// asks again, perhaps somebody else.
	Patience time.Duration
	// Panics says that a server was told to panic: that something went wrong inside
	// it says no more then than that the connection broke.
	Panics bool

	door door
	http *http.Client
}

// door is whom a client asks, and tells who did not answer.
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

// Close gives the connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Refusal is an answer that says no.
type Refusal struct {
	Status  int
	Type    string
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Type, r.Message) }

// Refused returns the refusal that err is, or nil.
func Refused(err error) *Refusal {
	r, _ := errors.AsType[*Refusal](err)
	return r
}

// ErrCut means that the connection broke before the answer was there: the
// request may or may not have been carried out.
var ErrCut = errors.New("the request was cut off")

// Tar is a body that is one.
type Tar string

// Once sends one request to the life that listens now and reads its answer as
// JSON, or as it is if into is a string. It returns ErrCut if the server died
// under it.
func (c *Client) Once(ctx context.Context, method, path string, body, into any) (status int, err error) {
	l, err := c.door.Live(ctx)
	if err != nil {
		return 0, err
	}
	within := ctx
	if c.Patience > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, c.Patience)
		defer cancel()
	}
	res, err := c.send(within, l, method, path, body, nil)
	if err != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		c.door.Blame(l)
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		var refusal struct {
			Error struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
		}
		_ = json.Unmarshal(b, &refusal) // an answer that is no JSON has no type
		if c.Panics && res.StatusCode == http.StatusInternalServerError {
			return res.StatusCode, fmt.Errorf("%w: %s", ErrCut, refusal.Error.Message)
		}
		return res.StatusCode, &Refusal{res.StatusCode, refusal.Error.Type, refusal.Error.Message}
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

func (c *Client) send(ctx context.Context, l *Life, method, path string, body any, header http.Header) (*http.Response, error) {
	var r io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	case Tar:
		r, kind = strings.NewReader(string(b)), "application/x-tar"
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+l.Addr()+path, r)
	if err != nil {
		return nil, err
	}
	if r != nil {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("Authorization", "Bearer "+c.door.Token())
	maps.Copy(req.Header, header)
	return c.http.Do(req)
}

// Get asks until it is answered, across any number of lives: reading twice does
// no harm.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.Repeat(ctx, http.MethodGet, path, nil, into)
}

// Repeat sends a request that is the same twice until it is answered. A server
// that says it is going, or cannot say, is asked again.
func (c *Client) Repeat(ctx context.Context, method, path string, body, into any) error {
	for {
		_, err := c.Once(ctx, method, path, body, into)
		if !Again(err) {
			return err
		}
		if err := Pause(ctx, 2*time.Millisecond); err != nil {
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
	res, err := c.send(ctx, l, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = &Refusal{Status: res.StatusCode, Message: string(b)}
	}
	return string(b), err
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

// Pause waits for d.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
