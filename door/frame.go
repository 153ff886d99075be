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

	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/internal/lograte"
	"github.com/dormouse-run/dormouse/session"
)

// Frame carries requests through the routes of one door. What is in the door's own
// dialect, it asks the door.
type Frame struct {
	Logger *slog.Logger
	// Admit finds out who asks, or refuses. Open routes are for whoever reaches the
	// server.
	Admit func(c *Call, open bool) error
	// Tell says how an error is told to a client.
	Tell func(err error, request string) Telling
	// Observe is told of every answer, if not nil.
	Observe func(method, route string, status int, took time.Duration)
	// Witness is told what is read of requests, if not nil.
	Witness Witness

	once      sync.Once
	strangers *slog.Logger // for what anybody can cause
}

// logger is the one for a call. What strangers cause is bounded, and the rest counted.
func (f *Frame) logger(c *Call) *slog.Logger {
	if c.Who.Tenant != "" {
		return f.Logger
	}
	f.once.Do(func() { f.strangers = slog.New(lograte.New(f.Logger.Handler(), lograte.Options{})) })
	return f.strangers
}

// Telling is an error in a door's dialect.
type Telling struct {
	Status  int
	Headers map[string]string
	Body    any
}

// Route is one way in.
type Route struct {
	Pattern string
	Open    bool
	Methods Methods // those it takes; none where there is no such route
}

type (
	// Handler answers a call, or returns why not.
	Handler func(*Call) error
	// Methods are what a route takes, so that another method is told which there are.
	Methods map[string]Handler
)

// MethodsOf are handlers that take calls as their door sees them.
func MethodsOf[C any](m map[string]func(C) error, as func(*Call) C) Methods {
	all := make(Methods, len(m))
	for method, h := range m {
		all[method] = func(c *Call) error { return h(as(c)) }
	}
	return all
}

// Serve carries a request through a route.
func (f *Frame) Serve(w http.ResponseWriter, r *http.Request, route Route) {
	start := time.Now()
	c := &Call{W: w, R: r, ID: session.NewID("req_"), frame: f, witness: f.Witness}
	w.Header().Set("Request-Id", c.ID)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	defer func() {
		if p := recover(); p != nil {
			f.panicked(c, p)
		}
		f.done(c, route.Pattern, time.Since(start))
	}()
	if err := f.serve(c, route); err != nil {
		c.refuse(err)
	}
}

func (f *Frame) serve(c *Call, route Route) error {
	if err := f.Admit(c, route.Open); err != nil {
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

// panicked answers for a handler that could not. Other requests go on.
func (f *Frame) panicked(c *Call, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	f.Logger.ErrorContext(c.R.Context(), "request panicked", "request", c.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.Status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	c.refuse(fmt.Errorf("panic: %v", p))
}

func (f *Frame) done(c *Call, route string, took time.Duration) {
	ctx, log, method := context.WithoutCancel(c.R.Context()), f.logger(c), Shorten(c.R.Method)
	if c.reason != nil {
		log.WarnContext(ctx, "request failed", "request", c.ID, "method", method, "route", route, "status", c.Status, "error", c.reason)
	}
	if c.Status == http.StatusUnauthorized {
		log.InfoContext(ctx, "token refused", "request", c.ID, "method", method, "route", route, "address", c.R.RemoteAddr)
	}
	log.DebugContext(ctx, "request answered", "request", c.ID, "method", method, "route", route, "status", c.Status, "took", took)
	if f.Observe != nil {
		if c.Stream {
			route += "?follow"
		}
		f.Observe(c.R.Method, route, c.Status, took)
	}
}
