// Package v1 is the door that speaks the Managed Agents API: JSON over HTTP under
// /v1, as the official clients of both generations speak it. Requests are closed:
// what the API does not have is refused, never guessed at. Replies hold exactly
// what the API's own description of them allows.
package v1

import (
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/door"
)

// Prefix is where the routes are.
const Prefix = "/v1/"

// Sessions is what this door asks of sessions. Each part of it is declared in the
// file that uses it.
type Sessions interface {
	door.Rows
	door.Tenants
	eventReader
	promptReader
	commander
	ageReader
	creator
	lister
	stateReader
	streamer
}

// Config is what the door needs.
type Config struct {
	Auth   door.Authenticator
	Logger *slog.Logger
	// Catalog has the agents, the environments and the vaults.
	Catalog  *catalog.Catalog
	Models   Models
	Sessions Sessions
	// SleepAfter is how long a session's sandbox may be idle, and CheckAgent refuses an
	// agent that this server could not run.
	SleepAfter time.Duration
	CheckAgent func(dormouse.AgentConfig) error
	// Hosts are the host names of the server, besides those of loopback.
	Hosts []string
	// Observe is called after every response, if not nil.
	Observe func(method, route string, status int, took time.Duration)
	// Witness records what is read of requests, if not nil.
	Witness door.Witness
	// KeepAlive is the interval of heartbeats on a stream without events, WriteTimeout
	// how long a client may take to read what it was sent. 0 means the default.
	KeepAlive    time.Duration
	WriteTimeout time.Duration
}

// Models are those that the server has.
type Models interface {
	// All lists the models that have a name of their own here.
	All() []Model
	// Find returns the model that a name stands for, which may be one that All does
	// not list.
	Find(id string) (Model, bool)
}

// Server is the door.
type Server struct {
	Config
	router     door.Router
	hostPolicy *door.HostPolicy
	followers  atomic.Int64
}

// New returns a door, which is an http.Handler.
func New(c Config) *Server {
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 20 * time.Second
	}
	s := &Server{Config: c, hostPolicy: door.NewHostPolicy(c.Hosts)}
	s.router = door.Router{Logger: c.Logger, Admit: s.admit, ErrorResponse: errorResponse, Observe: c.Observe, Witness: c.Witness}
	s.routes()
	return s
}

// Followers counts the streams that are open.
func (s *Server) Followers() int { return int(s.followers.Load()) }

// Routes returns every route.
func (s *Server) Routes() []door.Route { return s.router.Routes() }

// routes adds every route.
func (s *Server) routes() {
	s.agentRoutes()
	s.environmentRoutes()
	s.modelRoutes()
	s.sessionRoutes()
	s.vaultRoutes()
	s.handle(Prefix, nil)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.router.Serve(w, r, door.Route{Pattern: Prefix})
}

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path.Clean(r.URL.Path) != r.URL.Path || !strings.HasPrefix(r.URL.Path, Prefix) {
		// The mux would redirect, or answer 404 without JSON.
		s.notFound(w, r)
		return
	}
	s.router.ServeHTTP(w, r)
}
