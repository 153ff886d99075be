// Package anthropic calls the models of Anthropic, with the official SDK.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/retryafter"
	"github.com/dormouse-run/dormouse/model"
)

// Config says how to reach the provider.
type Config struct {
	// Key is the API key.
	Key string
	// BaseURL is everything before /v1/messages; the provider's own if it is empty.
	BaseURL string
	// Transport carries the requests; nil is one of the model's own.
	Transport http.RoundTripper
	// HeaderTimeout bounds the wait for the first byte of an answer, IdleTimeout the
	// wait for each further event. 0 is five minutes.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
}

const (
	// Default is the model of sessions that name none.
	Default = sdk.ModelClaudeSonnet5_5

	defaultIdle      = 5 * time.Minute
	defaultMaxTokens = 32_000
	// maxReply bounds the text and the inputs of one reply: several times the longest
	// there is.
	maxReply = 16 << 20
)

// Model is all models behind one key; the request names the one. It sends each request
// once.
type Model struct {
	config   Config
	messages sdk.MessageService
}

// New returns a model that has not connected to anything yet. Nothing is read from the
// environment.
func New(c Config) *Model {
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
	client := &http.Client{
		Transport: c.Transport,
		// A redirect would send the request a second time.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	opts := []option.RequestOption{
		option.WithEnvironmentProduction(), option.WithAPIKey(c.Key), option.WithHTTPClient(client), option.WithMaxRetries(0),
	}
	if c.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(c.BaseURL))
	}
	return &Model{config: c, messages: sdk.NewMessageService(opts...)}
}

var errSilence = errors.New("nothing came in time")

// Reply sends r once and reads the answer to its end.
func (m *Model) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	params, err := paramsOf(r)
	if err != nil {
		return model.Reply{}, &model.Error{Kind: model.Rejected, Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(m.config.HeaderTimeout, func() { cancel(errSilence) })
	defer silence.Stop()
	stream := m.messages.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	var a answer
	var reported dormouse.ModelUsage
	for stream.Next() {
		silence.Reset(m.config.IdleTimeout)
		err := a.addEvent(stream.Current(), delta)
		if a.usage != reported && r.Counted != nil {
			reported = a.usage
			r.Counted(reported)
		}
		if err != nil {
			return model.Reply{}, err
		}
		if a.over {
			return a.reply()
		}
	}
	err = stream.Err()
	switch {
	case ctx.Err() != nil: // the transport says how it noticed, the cause why
		return model.Reply{}, &model.Error{Kind: model.RequestFailed, Err: fmt.Errorf("%w: %w", context.Cause(ctx), errors.Join(ctx.Err(), err))}
	case err != nil:
		return model.Reply{}, failure(err)
	}
	return model.Reply{}, &model.Error{Kind: model.RequestFailed, Err: errors.New("the answer was cut off")}
}

// failure says what an error of the SDK means for the caller.
func failure(err error) *model.Error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return &model.Error{Kind: model.RequestFailed, Err: err}
	}
	said := fmt.Errorf("status %d: %s: %s", e.StatusCode, e.Type(), e.Message)
	out := &model.Error{Kind: model.KindOf(e.StatusCode), Err: said}
	if e.Response != nil {
		out.RetryAfter = retryafter.Of(e.Response.Header)
	}
	if e.StatusCode == http.StatusOK { // it came in the middle of an answer
		out.Kind, out.Err = midway(string(e.Type())), fmt.Errorf("%s: %s", e.Type(), e.Message)
	}
	return out
}

// midway is what an error means that ends an answer.
func midway(kind string) model.ErrorKind {
	switch kind {
	case "overloaded_error":
		return model.Overloaded
	case "rate_limit_error":
		return model.RateLimited
	case "invalid_request_error", "authentication_error", "permission_error", "billing_error", "not_found_error", "request_too_large":
		return model.Rejected
	}
	return model.RequestFailed
}
