// Package v1 is the door that speaks the Managed Agents API: JSON over HTTP under
// /v1, as the official clients of both generations speak it. Requests are closed:
// what the API does not have is refused, never guessed at. Replies hold exactly
// what the API's own description of them allows.
package v1

import (
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/door"
)

// Prefix is where the routes are.
const Prefix = "/v1/"

// Deps is what the door opens to.
type Deps struct {
	Auth   *auth.Local
	Logger *slog.Logger
	// Hosts are the names under which the server may be called, besides those of
	// loopback.
	Hosts []string
	// Observe is told of every answer, if not nil.
	Observe func(method, route string, status int, took time.Duration)
}

// Server is the door.
type Server struct {
	Deps
	mux   http.ServeMux
	guard *door.Guard
}

// New returns a door that is not yet open: it is an http.Handler.
func New(d Deps) *Server {
	s := &Server{Deps: d, guard: door.NewGuard(d.Hosts)}
	s.routes()
	return s
}

// routes is every way in. Each names its methods, so that another method is told
// which there are.
func (s *Server) routes() {
	s.mux.HandleFunc("/", s.nowhere)
}

func (s *Server) nowhere(w http.ResponseWriter, r *http.Request) { s.answer(w, r, Prefix, nil) }

// ServeHTTP lets a request in.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path.Clean(r.URL.Path) != r.URL.Path {
		// The mux would send the client elsewhere, and not in JSON.
		s.nowhere(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}
