package rest

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
	"github.com/dormouse-run/dormouse/door"
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

// Who may use a route.
const (
	open   = false // whoever reaches the server
	closed = true  // whoever shows the token
)

// answerWithin bounds how long a session may take to answer. Past it nobody
// knows whether the command will still be carried out.
const answerWithin = 60 * time.Second

// handle adds a route.
func (s *Server) handle(route string, needsToken bool, m methods) {
	s.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
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
		if err := s.serve(c, needsToken, m); err != nil {
			c.refuse(err)
		}
	})
}

func (s *Server) serve(c *call, needsToken bool, m methods) error {
	if err := s.guard.Check(c.r); err != nil {
		return err
	}
	if needsToken || m == nil {
		who, ok := s.Auth.Authenticate(c.r.Header.Get("Authorization"))
		if !ok {
			c.w.Header().Set("WWW-Authenticate", "Bearer")
			return &door.Refusal{Status: http.StatusUnauthorized, Type: "unauthorized", Message: "send the server's token as Authorization: Bearer"}
		}
		c.who = who
	}
	if m == nil {
		return &door.Refusal{Status: http.StatusNotFound, Type: "not_found", Message: "there is no such route"}
	}
	h := m[c.r.Method]
	if h == nil {
		allowed := make([]string, 0, len(m))
		for method := range m {
			allowed = append(allowed, method)
		}
		slices.Sort(allowed)
		c.w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &door.Refusal{Status: http.StatusMethodNotAllowed, Type: "method_not_allowed", Message: "this route takes " + strings.Join(allowed, " and ")}
	}
	return h(c)
}

// ServeHTTP lets a request in.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// ctx is the request's, with an end.
func (c *call) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(c.r.Context(), answerWithin, dormouse.ErrUnknownOutcome)
}

// answer sends v and returns once it is on its way.
func (c *call) answer(status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // an event is the same bytes in a page and in a stream
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.send(status, b.Bytes())
	return nil
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

// none answers that there is nothing to say.
func (c *call) none() {
	c.status = http.StatusNoContent
	c.w.WriteHeader(http.StatusNoContent)
}

// refuse tells the client why not.
func (c *call) refuse(err error) {
	reply := door.ReplyTo(err)
	if reply.Status >= http.StatusInternalServerError {
		c.reason = err
	}
	if c.status != 0 {
		c.reason = errors.Join(err, errors.New("after the answer had begun"))
		return
	}
	if reply.Status == http.StatusServiceUnavailable {
		c.w.Header().Set("Retry-After", "1")
	}
	body := struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Request string `json:"request_id"`
	}{Request: c.id}
	body.Error.Type, body.Error.Message = reply.Type, strings.ToValidUTF8(reply.Message, "\uFFFD")
	b, err := json.Marshal(body)
	if err != nil {
		b = []byte(`{"error":{"type":"internal","message":"internal error"}}`)
	}
	c.send(reply.Status, append(b, '\n'))
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

// row finds the session a request is about. One of another tenant is not found.
func (s *Server) row(ctx context.Context, c *call) (session.Row, error) {
	return s.rowOf(ctx, c.who, dormouse.SessionID(c.r.PathValue("id")))
}

func (s *Server) rowOf(ctx context.Context, who auth.Principal, id dormouse.SessionID) (session.Row, error) {
	row, err := s.Sessions.Row(ctx, id)
	if err == nil && row.Tenant != who.Tenant {
		err = dormouse.ErrNotFound
	}
	if err != nil {
		return session.Row{}, fmt.Errorf("session %q: %w", shorten(string(id)), err)
	}
	return row, nil
}

// own checks that the session a request is about is its sender's. That is all
// that what only asks the session has to know.
func (s *Server) own(ctx context.Context, c *call) (dormouse.SessionID, error) {
	id := dormouse.SessionID(c.r.PathValue("id"))
	tenant, err := s.Sessions.Tenant(ctx, id)
	if err == nil && tenant != c.who.Tenant {
		err = dormouse.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("session %q: %w", shorten(string(id)), err)
	}
	return id, nil
}

// peek finds the session a request is about, and where it stands.
func (s *Server) peek(ctx context.Context, c *call) (session.State, error) {
	row, err := s.row(ctx, c)
	if err != nil {
		return session.State{}, err
	}
	return s.Sessions.Peek(ctx, row.Session)
}

// shorten keeps a client's own words from filling the answer.
func shorten(s string) string { return door.Shorten(s) }
