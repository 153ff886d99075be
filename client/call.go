package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// Tar is a request body in tar format. Size is its length in bytes, or 0 if that is not known.
type Tar struct {
	io.Reader
	Size int64
}

type answerKey struct{}

// KeepAnswer returns a context under which calls store their response bodies in raw, exactly
// as the server sent them, including fields that this package does not know.
func KeepAnswer(ctx context.Context, raw *[]byte) context.Context {
	return context.WithValue(ctx, answerKey{}, raw)
}

// Call sends a request that the server answers at once, and waits for the client's timeout
// at most. The body is in, unless that is nil; the response is decoded into out, unless
// that is nil. It is for routes for which Client has no method.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := c.within(ctx)
	defer cancel()
	return c.wait(ctx, method, path, in, out)
}

// wait is Call without a timeout.
func (c *Client) wait(ctx context.Context, method, path string, in, out any) error {
	res, err := c.Do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	const most = 256 << 20
	b, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if raw, ok := ctx.Value(answerKey{}).(*[]byte); ok {
		*raw = b
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("understand answer: %w", err)
	}
	return nil
}

// Do sends a request and returns the response, whose body the caller must close. A status of
// 300 or more is returned as an *Error. If in is nil there is no body; a []byte is sent
// unchanged with the content type of JSON, a Tar as a tar, anything else encoded as JSON.
func (c *Client) Do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	return c.do(ctx, method, path, in, nil)
}

func (c *Client) do(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	at, err := c.locate(ctx)
	if err != nil {
		return nil, err
	}
	req, err := newRequest(ctx, method, at.URL+path, in)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+at.Token)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unanswered(at, err)
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, readError(res)
}

func unanswered(at Server, err error) error {
	return fmt.Errorf("no server answers at %s: %w", at.URL, err)
}

func newRequest(ctx context.Context, method, url string, in any) (*http.Request, error) {
	var body io.Reader
	kind, size := "application/json", int64(0)
	switch b := in.(type) {
	case nil:
		kind = ""
	case []byte:
		body = bytes.NewReader(b)
	case Tar:
		// The transport closes the body of a request, but the reader is the caller's to close.
		body, kind, size = io.NopCloser(b.Reader), "application/x-tar", b.Size
	default:
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if _, ok := in.(Tar); ok {
		if req.ContentLength = size; size == 0 {
			req.ContentLength = -1
		}
		req.Header.Set("Expect", "100-continue") // so that a server can refuse before the body is sent
	}
	return req, nil
}

// of returns the path of a session, or of a resource below it.
func of(id dormouse.SessionID, below ...string) string {
	parts := []string{"/api/sessions", url.PathEscape(string(id))}
	for _, part := range below {
		parts = append(parts, url.PathEscape(part))
	}
	return strings.Join(parts, "/")
}

// get sends a GET that the server answers at once.
func get[T any](ctx context.Context, c *Client, path string, q url.Values) (answer T, err error) {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return answer, c.Call(ctx, http.MethodGet, path, nil, &answer)
}

// post sends a POST that the server answers at once.
func post[T any](ctx context.Context, c *Client, id dormouse.SessionID, what string, in any) (answer T, err error) {
	return answer, c.Call(ctx, http.MethodPost, of(id, what), in, &answer)
}

// query builds a query from pairs of names and values; empty values are left out.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
