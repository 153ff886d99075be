package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// stateReader reads the state that a session has now.
type stateReader interface {
	Peek(ctx context.Context, id dormouse.SessionID) (law.State, error)
}

// call is one request.
type call struct{ *door.Call }

type methods map[string]func(call) error

// What a route requires of a request.
const (
	open   = true  // nothing
	closed = false // the token
)

// handle adds a route.
func (s *Server) handle(pattern string, open bool, m methods) {
	s.router.Handle(door.Route{Pattern: pattern, Open: open, Methods: door.MethodsOf(m, func(c *door.Call) call { return call{c} })})
}

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.router.ServeHTTP(w, r) }

// admit authenticates the request.
func (s *Server) admit(c *door.Call, open bool) error {
	if err := s.hostPolicy.Check(c.R); err != nil || open {
		return err
	}
	who, ok := s.Auth.Authenticate(c.R.Header.Get("Authorization"))
	if !ok {
		c.W.Header().Set("WWW-Authenticate", "Bearer")
		return &door.Refusal{Status: http.StatusUnauthorized, Type: "unauthorized", Message: "send the server's token as Authorization: Bearer"}
	}
	c.Who = who
	return nil
}

// errorResponse is the response that this API has for an error.
func errorResponse(err error, request string) door.ErrorResponse {
	reply := door.ReplyTo(err)
	response := door.ErrorResponse{Status: reply.Status}
	if reply.Status == http.StatusServiceUnavailable {
		response.Headers = map[string]string{"Retry-After": "1"}
	}
	type cause struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	response.Body = struct {
		Error   cause  `json:"error"`
		Request string `json:"request_id"`
	}{cause{reply.Type, strings.ToValidUTF8(reply.Message, "\uFFFD")}, request}
	return response
}

// named is the session in the path of a request.
func (c call) named() dormouse.SessionID { return dormouse.SessionID(c.R.PathValue("id")) }

func (s *Server) row(ctx context.Context, c call) (session.Row, error) {
	return c.Row(ctx, s.Sessions, c.named())
}

func (s *Server) own(ctx context.Context, c call) (dormouse.SessionID, error) {
	return c.Own(ctx, s.Sessions, c.named())
}

// peek reads the state of the session in the path of a request.
func (s *Server) peek(ctx context.Context, c call) (law.State, error) {
	row, err := s.row(ctx, c)
	if err != nil {
		return law.State{}, err
	}
	return s.Sessions.Peek(ctx, row.Session)
}

// shorten truncates text of a client that an answer repeats.
func shorten(s string) string { return door.Shorten(s) }
