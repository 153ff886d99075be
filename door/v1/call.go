package v1

import (
	"net/http"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/door"
)

// call is one request.
type call struct{ *door.Call }

type methods map[string]func(call) error

// handle adds a route.
func (s *Server) handle(pattern string, m methods) {
	s.router.Handle(door.Route{Pattern: pattern, Methods: door.MethodsOf(m, func(c *door.Call) call { return call{c} })})
}

// admit finds out who asks, and in which version of the API.
func (s *Server) admit(c *door.Call, _ bool) error {
	if err := s.hostPolicy.Check(c.R); err != nil {
		return err
	}
	who, ok := s.recognize(c.R.Header)
	if !ok {
		return refusef(http.StatusUnauthorized, "send the server's token as x-api-key, or as Authorization: Bearer")
	}
	c.Who = who
	return checkVersion(c.R.Header)
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
