package egress

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/dormouse-run/dormouse"
)

// Journal records requests that have effects and a credential, so that after a crash it is
// known which may have had their effect.
type Journal interface {
	// Begin makes it durable that a request is about to be sent. An error means that it is
	// not sent. Otherwise finish is called once, with what became of it.
	Begin(ctx context.Context, m Mutation) (finish func(Outcome), err error)
}

// Mutation is a request with a credential whose method is not GET, HEAD or OPTIONS.
type Mutation struct {
	Session dormouse.SessionID
	// Vault and Credential name the first credential, if there are several.
	Vault, Credential string
	Method, Host      string
	Path              string // as it was written, without the query
}

// Outcome is what became of a request.
type Outcome struct {
	State  State
	Status int // of the answer, if State is Finished
}

// State says how far a request got.
type State int

// The states. The zero value is the cautious one.
const (
	// Unknown is a request that was being sent when the connection broke, or that was given
	// up: its effect may have happened.
	Unknown State = iota
	// Finished is a request whose answer has begun.
	Finished
	// NotSent is a request of which no byte has left: no connection was to be had.
	NotSent
)

// journalled sends a request whose op is made durable first. The op begins when nothing
// of ours can refuse the request any more, and before a connection is asked for: of a
// pooled connection nobody knows the moment just before its first byte. So what cannot
// be reached has an op too, which ends as not sent.
func (w *sessionProxy) journalled(r *http.Request, m Mutation, send func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if w.proxy.opts.Journal == nil {
		return nil, &unavailable{what: "the request cannot be recorded"}
	}
	finish, err := w.proxy.opts.Journal.Begin(r.Context(), m)
	if err != nil {
		return nil, &unavailable{what: "the request cannot be recorded just now", err: err}
	}
	finish = once(finish)
	defer finish(Outcome{State: Unknown}) // if send panics
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	res, err := send(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err == nil:
		finish(Outcome{Finished, res.StatusCode})
	case !connected.Load():
		finish(Outcome{State: NotSent})
	}
	return res, err
}

func once(finish func(Outcome)) func(Outcome) {
	var done sync.Once
	return func(o Outcome) {
		done.Do(func() {
			if finish != nil {
				finish(o)
			}
		})
	}
}

// safe reports whether a method has no effects, so that its requests are not journalled.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}
