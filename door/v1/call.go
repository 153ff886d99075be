package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/session"
)

// call is one request on its way through the door.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	id  string
	who auth.Principal
	// status is what was answered; 0 as long as nothing was.
	status int
	// reason is why, when it is not the client's doing.
	reason error
	// stream says that the answer took as long as its client listened.
	stream bool
}

type (
	handler func(*call) error
	methods map[string]handler
)

// answerWithin bounds how long an answer may take. Past it nobody knows whether
// what was asked for will still be done.
const answerWithin = 60 * time.Second

// handle adds a route.
func (s *Server) handle(route string, m methods) {
	s.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, route, m) })
}

// answer carries a request through a route; a route without methods is none.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route string, m methods) {
	start := time.Now()
	c := &call{w: w, r: r, id: session.NewID("req_")}
	w.Header().Set("Request-Id", c.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	defer func() {
		if p := recover(); p != nil {
			s.panicked(c, p)
		}
		s.done(c, route, time.Since(start))
	}()
	if err := s.serve(c, m); err != nil {
		c.refuse(err)
	}
}

func (s *Server) serve(c *call, m methods) error {
	if err := s.guard.Check(c.r); err != nil {
		return err
	}
	who, ok := s.recognize(c.r.Header)
	if !ok {
		return refusef(http.StatusUnauthorized, "send the server's token as x-api-key, or as Authorization: Bearer")
	}
	c.who = who
	if err := checkVersion(c.r.Header); err != nil {
		return err
	}
	if m == nil {
		return refusef(http.StatusNotFound, "there is no route %s", shorten(c.r.URL.Path))
	}
	h := m[c.r.Method]
	if h == nil {
		allowed := make([]string, 0, len(m))
		for method := range m {
			allowed = append(allowed, method)
		}
		slices.Sort(allowed)
		c.w.Header().Set("Allow", strings.Join(allowed, ", "))
		return refusef(http.StatusMethodNotAllowed, "this route takes %s", strings.Join(allowed, " and "))
	}
	return h(c)
}

// recognize finds who asks. Older clients send the token as x-api-key, newer ones
// as a bearer.
func (s *Server) recognize(h http.Header) (auth.Principal, bool) {
	if key := h.Get("X-Api-Key"); key != "" {
		if who, ok := s.Auth.Recognize(key); ok {
			return who, true
		}
	}
	return s.Auth.Authenticate(h.Get("Authorization"))
}

// versions are those of the API that clients speak. What is served here is the
// same in both.
var versions = []string{"2023-06-01", "2026-10-21"}

func checkVersion(h http.Header) error {
	if v := h.Get("Anthropic-Version"); v != "" && !slices.Contains(versions, v) {
		return invalidf("anthropic-version %q is not known; there is %s", shorten(v), strings.Join(versions, " and "))
	}
	return nil
}

// ctx is the request's, with an end.
func (c *call) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(c.r.Context(), answerWithin, dormouse.ErrUnknownOutcome)
}

// answer sends v and returns once it is on its way.
func (c *call) answer(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // an event is the same bytes in a page and in a stream
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.send(http.StatusOK, b.Bytes())
	return nil
}

// answerWith sends v, unless there is an error.
func (c *call) answerWith(v any, err error) error {
	if err != nil {
		return err
	}
	return c.answer(v)
}

func (c *call) send(status int, b []byte) {
	c.status = status
	c.w.Header().Set("Content-Type", "application/json")
	// With its length, an answer is whole for the client as soon as it is flushed.
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	c.w.WriteHeader(status)
	// A client that left is not told; what it asked for is done all the same.
	_, _ = c.w.Write(b)
	_ = http.NewResponseController(c.w).Flush()
}

// refuse tells the client why not.
func (c *call) refuse(err error) {
	reply := replyTo(err)
	if reply.status >= http.StatusInternalServerError {
		c.reason = err
	}
	if c.status != 0 {
		c.reason = errors.Join(err, errors.New("after the answer had begun"))
		return
	}
	for name, value := range reply.headers() {
		c.w.Header().Set(name, value)
	}
	c.send(reply.status, reply.body(c.id))
}

// panicked answers for a handler that could not. Other requests go on.
func (s *Server) panicked(c *call, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	s.Logger.ErrorContext(c.r.Context(), "request panicked", "request", c.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	c.refuse(fmt.Errorf("panic: %v", p))
}

func (s *Server) done(c *call, route string, took time.Duration) {
	ctx := context.WithoutCancel(c.r.Context())
	if c.reason != nil {
		s.Logger.WarnContext(ctx, "request failed", "request", c.id, "method", c.r.Method, "route", route, "status", c.status, "error", c.reason)
	}
	s.Logger.DebugContext(ctx, "request answered", "request", c.id, "method", c.r.Method, "route", route, "status", c.status, "took", took)
	if s.Observe != nil {
		if c.stream {
			route += "?follow"
		}
		s.Observe(c.r.Method, route, c.status, took)
	}
}
