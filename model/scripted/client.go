package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/retryafter"
	"github.com/dormouse-run/dormouse/model"
)

// The defaults of a ClientConfig.
const (
	defaultIdle      = 5 * time.Minute
	defaultMaxTokens = 8192
)

// Limits of what a server may send.
const (
	// maxEvent bounds one event, and so what is buffered of a stream unread.
	maxEvent = 1 << 20
	// maxReply bounds the bytes of one reply: several times the longest there is.
	maxReply = 64 << 20
	// maxFailure bounds the body of an error that is read.
	maxFailure = 64 << 10
)

// ClientConfig says how to reach a server.
type ClientConfig struct {
	// BaseURL is everything before /v1/messages.
	BaseURL string
	// Key is sent as x-api-key when there is one.
	Key string
	// Keyed sends op ids as idempotency keys.
	Keyed bool
	// Transport carries the requests; nil is one of the client's own.
	Transport http.RoundTripper
	// HeaderTimeout bounds the wait for the first byte of an answer, IdleTimeout
	// the wait for each further one. 0 is five minutes.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
}

// Client is a model behind the Messages API. It sends each request once.
type Client struct {
	config ClientConfig
	http   *http.Client
}

// NewClient returns a client that has not connected to anything yet.
func NewClient(c ClientConfig) *Client {
	if c.HeaderTimeout <= 0 {
		c.HeaderTimeout = defaultIdle
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = defaultIdle
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		}
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	return &Client{config: c, http: &http.Client{
		Transport: c.Transport,
		// A redirect would send the request a second time.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Keyed reports whether op ids are sent as idempotency keys.
func (c *Client) Keyed() bool { return c.config.Keyed }

var errSilence = errors.New("nothing came in time")

// Reply sends r once and reads the answer to its end.
func (c *Client) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.config.HeaderTimeout, func() { cancel(errSilence) })
	defer silence.Stop()
	reply, err := c.exchange(ctx, r, delta, func() { silence.Reset(c.config.IdleTimeout) })
	if err == nil {
		return reply, nil
	}
	e := model.AsError(err)
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		// The transport says how it noticed; the cause says why.
		e = &model.Error{Kind: model.RequestFailed, Err: fmt.Errorf("%w: %w", context.Cause(ctx), e.Err)}
	}
	return model.Reply{}, e
}

// exchange is one request and its answer; heard is called whenever data arrives.
func (c *Client) exchange(ctx context.Context, r model.Request, delta func(model.Delta) error, heard func()) (model.Reply, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return model.Reply{}, &model.Error{Kind: model.Rejected, Err: err}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return model.Reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	heard()
	if res.StatusCode != http.StatusOK {
		return model.Reply{}, failure(res)
	}
	body := &listener{r: io.LimitReader(res.Body, maxReply), heard: heard}
	switch kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind {
	case "text/event-stream":
		reply, err := readStream(body, delta)
		if err == nil {
			drain(res.Body)
		}
		return reply, err
	case "application/json":
		return readWhole(body)
	default:
		return model.Reply{}, fmt.Errorf("the answer is of type %q", kind)
	}
}

// drain reads the rest of a body whose answer is complete, so that the connection can be
// reused. A body that does not end soon is not
// waited for.
func drain(body io.ReadCloser) {
	const soon, rest = 50 * time.Millisecond, 4 << 10
	late := time.AfterFunc(soon, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, rest))
}

func (c *Client) request(ctx context.Context, r model.Request) (*http.Request, error) {
	body := struct {
		Model     string          `json:"model"`
		MaxTokens int             `json:"max_tokens"`
		System    string          `json:"system,omitempty"`
		Messages  []model.Message `json:"messages"`
		Tools     []model.Tool    `json:"tools,omitempty"`
		Stream    bool            `json:"stream"`
	}{r.Model, r.MaxTokens, r.System, r.Messages, r.Tools, true}
	if body.MaxTokens == 0 {
		body.MaxTokens = defaultMaxTokens
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	// A body that cannot be rewound keeps the transport from sending it again
	// after a broken connection, which an idempotency key would invite it to do.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.BaseURL+"/v1/messages", io.NopCloser(bytes.NewReader(b)))
	if err != nil {
		return nil, fmt.Errorf("address the request: %w", err)
	}
	req.ContentLength = int64(len(b))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if c.config.Key != "" {
		req.Header.Set("X-Api-Key", c.config.Key)
	}
	if c.config.Keyed && r.Op != "" {
		req.Header.Set("Idempotency-Key", string(r.Op))
	}
	return req, nil
}

// failure reads an answer that is not a reply.
func failure(res *http.Response) *model.Error {
	e := &model.Error{Kind: model.KindOf(res.StatusCode), RetryAfter: retryafter.Of(res.Header)}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxFailure))
	var f wireFailure
	if err != nil || json.Unmarshal(b, &f) != nil || f.Error.Message == "" {
		e.Err = fmt.Errorf("status %d", res.StatusCode)
		return e
	}
	e.Err = fmt.Errorf("status %d: %s: %s", res.StatusCode, f.Error.Type, f.Error.Message)
	return e
}

// listener reports each read that brought something.
type listener struct {
	r     io.Reader
	heard func()
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 {
		l.heard()
	}
	return n, err
}
