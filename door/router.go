package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/internal/lograte"
	"github.com/dormouse-run/dormouse/session"
)

// Router is the routes of one door. Handle is the only way to add one, so that
// Routes is every way in. What differs from door to door, it asks the door.
type Router struct {
	Logger *slog.Logger
	// Admit authenticates a request, or refuses it. Open routes are for every client that
	// can reach the server.
	Admit func(c *Call, open bool) error
	// ErrorResponse is the response to a request, of this id, that failed.
	ErrorResponse func(err error, request string) ErrorResponse
	// Observe is called after every response, if not nil.
	Observe func(method, route string, status int, took time.Duration)
	// Witness records what is read of requests, if not nil.
	Witness Witness

	mux    http.ServeMux
	routes []Route

	once      sync.Once
	strangers *slog.Logger // for what anybody can cause; it is rate limited
}

// ErrorResponse is an error as a door's API has it.
type ErrorResponse struct {
	Status  int
	Headers map[string]string
	Body    any
}

// Authenticator authenticates the sender of a request.
type Authenticator interface {
	// Authenticate returns the principal that an Authorization header proves.
	Authenticate(header string) (auth.Principal, bool)
	// Recognize returns whose token this is.
	Recognize(token string) (auth.Principal, bool)
}

// Route is one way in.
type Route struct {
	Pattern string
	Open    bool    // it needs no token
	Methods Methods // those it takes; none where there is no such route
}

type (
	// Handler answers a call, or returns why not.
	Handler func(*Call) error
	// Methods are the handlers of a route by method. Any other method is refused with
	// the list of these.
	Methods map[string]Handler
)

// MethodsOf returns the methods of handlers that take a door's own type of call.
func MethodsOf[C any](m map[string]func(C) error, as func(*Call) C) Methods {
	all := make(Methods, len(m))
	for method, h := range m {
		all[method] = func(c *Call) error { return h(as(c)) }
	}
	return all
}

// Handle adds a route.
func (ro *Router) Handle(route Route) {
	ro.routes = append(ro.routes, route)
	ro.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { ro.Serve(w, r, route) })
}

// Routes returns every route.
func (ro *Router) Routes() []Route { return slices.Clone(ro.routes) }

// ServeHTTP serves a request by the route that its path matches.
func (ro *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) { ro.mux.ServeHTTP(w, r) }

// Serve serves a request by one route.
func (ro *Router) Serve(w http.ResponseWriter, r *http.Request, route Route) {
	start := time.Now()
	c := &Call{W: w, R: r, ID: session.NewID("req_"), router: ro, witness: ro.Witness}
	w.Header().Set("Request-Id", c.ID)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	defer func() {
		if p := recover(); p != nil {
			ro.panicked(c, p)
		}
		ro.done(c, route.Pattern, time.Since(start))
	}()
	if err := ro.serve(c, route); err != nil {
		c.refuse(err)
	}
}

func (ro *Router) serve(c *Call, route Route) error {
	if err := ro.Admit(c, route.Open); err != nil {
		return err
	}
	if c.Who.Tenant != "" {
		connlimit.InUse(c.R.Context())
	}
	if len(route.Methods) == 0 {
		return &Refusal{Status: http.StatusNotFound, Type: "not_found", Message: "there is no route " + Shorten(strings.ToValidUTF8(c.R.URL.Path, "\uFFFD"))}
	}
	h := route.Methods[c.R.Method]
	if h == nil {
		allowed := slices.Sorted(maps.Keys(route.Methods))
		c.W.Header().Set("Allow", strings.Join(allowed, ", "))
		return &Refusal{Status: http.StatusMethodNotAllowed, Type: "method_not_allowed", Message: "this route takes " + strings.Join(allowed, " and ")}
	}
	return h(c)
}

// logger is the one for a call. Lines that strangers cause are rate limited.
func (ro *Router) logger(c *Call) *slog.Logger {
	if c.Who.Tenant != "" {
		return ro.Logger
	}
	ro.once.Do(func() { ro.strangers = slog.New(lograte.New(ro.Logger.Handler(), lograte.Options{})) })
	return ro.strangers
}

// panicked answers for a handler that panicked. Other requests go on.
func (ro *Router) panicked(c *Call, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	ro.Logger.ErrorContext(c.R.Context(), "request panicked", "request", c.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.Status != 0 {
		panic(http.ErrAbortHandler) // a response that was cut off must not look complete
	}
	c.refuse(fmt.Errorf("panic: %v", p))
}

func (ro *Router) done(c *Call, route string, took time.Duration) {
	ctx, log, method := context.WithoutCancel(c.R.Context()), ro.logger(c), Shorten(c.R.Method)
	if c.reason != nil {
		log.WarnContext(ctx, "request failed", "request", c.ID, "method", method, "route", route, "status", c.Status, "error", c.reason)
	}
	if c.Status == http.StatusUnauthorized {
		log.InfoContext(ctx, "token refused", "request", c.ID, "method", method, "route", route, "address", c.R.RemoteAddr)
	}
	log.DebugContext(ctx, "request answered", "request", c.ID, "method", method, "route", route, "status", c.Status, "took", took)
	if ro.Observe != nil {
		if c.Stream {
			route += "?follow"
		}
		ro.Observe(c.R.Method, route, c.Status, took)
	}
}
