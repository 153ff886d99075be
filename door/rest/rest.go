// Package rest is our own door: JSON over HTTP under /api, and events as a
// stream that resumes by cursor. It is thin: it decodes, authorises, asks the
// session and encodes. It keeps no state that a restart would lose.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
)

// Sessions is what this door asks of sessions. Each part of it is declared in the
// file that uses it.
type Sessions interface {
	door.Rows
	door.Tenants
	stateReader
	commander
	creator
	importer
	brancher
	restorer
	snapshotReader
	snapshotter
	eventReader
	execer
	lister
	prompter
	opReader
	partialReader
	streamer
	visitor
	scheduler
}

// Config is what the door needs.
type Config struct {
	Sessions Sessions
	Auth     door.Authenticator
	Logger   *slog.Logger
	// Hosts are the host names of the server, besides those of loopback. Requests for
	// any other are refused: see door.HostPolicy.
	Hosts []string
	// Agent is what a session gets where its creator says nothing.
	Agent      dormouse.AgentConfig
	SleepAfter time.Duration
	// CheckAgent refuses an agent that this server could not run.
	CheckAgent func(dormouse.AgentConfig) error
	// VaultKeys are the keys of the vaults; nil means that the server keeps no secrets.
	VaultKeys VaultKeys
	// Ready reports why the server should get no traffic; nil means always ready.
	Ready func(context.Context) error
	// Metrics answers /metrics, if not nil.
	Metrics http.Handler
	// Observe is called after every response, if not nil.
	Observe func(method, route string, status int, took time.Duration)
	// Witness records what is read of requests, if not nil.
	Witness door.Witness
	// KeepAlive is the interval of heartbeats on a stream without events, WriteTimeout
	// how long a client may take to read what it was sent, and GoneWithin how long a
	// delete waits for the session to be gone. 0 means the default.
	KeepAlive    time.Duration
	WriteTimeout time.Duration
	GoneWithin   time.Duration
}

// Server is the door.
type Server struct {
	Config
	router     door.Router
	hostPolicy *door.HostPolicy
	ready      readiness
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
	if c.GoneWithin == 0 {
		c.GoneWithin = 5 * time.Second
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
	s.handle("/healthz", open, methods{http.MethodGet: s.healthz})
	s.handle("/readyz", open, methods{http.MethodGet: s.readyz})
	s.handle("/metrics", closed, methods{http.MethodGet: s.metrics})

	s.handle("/api/sessions", closed, methods{http.MethodGet: s.listSessions, http.MethodPost: s.createSession})
	s.handle("/api/sessions/import", closed, methods{http.MethodPost: s.importSession})
	s.handle("/api/sessions/{id}", closed, methods{
		http.MethodGet: s.showSession, http.MethodPatch: s.describeSession, http.MethodDelete: s.deleteSession,
	})
	s.handle("/api/sessions/{id}/prompts", closed, methods{http.MethodPost: s.prompt})
	s.handle("/api/sessions/{id}/events", closed, methods{http.MethodGet: s.events})
	s.handle("/api/sessions/{id}/ops", closed, methods{http.MethodGet: s.ops})
	s.handle("/api/sessions/{id}/queue", closed, methods{http.MethodGet: s.queue})
	s.handle("/api/sessions/{id}/queue/{prompt}", closed, methods{http.MethodDelete: s.cancelPrompt})
	s.handle("/api/sessions/{id}/threads", closed, methods{http.MethodGet: s.threads, http.MethodPost: s.openThread})
	s.handle("/api/sessions/{id}/wakeups", closed, methods{http.MethodGet: s.wakeups, http.MethodPost: s.schedule})
	s.handle("/api/sessions/{id}/wakeups/{wakeup}", closed, methods{http.MethodDelete: s.unschedule})
	s.handle("/api/sessions/{id}/children", closed, methods{http.MethodGet: s.children})
	s.handle("/api/sessions/{id}/children/{child}", closed, methods{http.MethodDelete: s.endChild})
	s.handle("/api/sessions/{id}/questions", closed, methods{http.MethodGet: s.questions})
	s.handle("/api/sessions/{id}/answers", closed, methods{http.MethodPost: s.answer})
	s.handle("/api/sessions/{id}/execs", closed, methods{http.MethodPost: s.exec})
	s.handle("/api/sessions/{id}/execs/{exec}", closed, methods{http.MethodDelete: s.endExec})
	s.handle("/api/sessions/{id}/interrupt", closed, methods{http.MethodPost: s.interrupt})
	s.handle("/api/sessions/{id}/retry", closed, methods{http.MethodPost: s.retry})
	s.handle("/api/sessions/{id}/continue", closed, methods{http.MethodPost: s.continueTurn})
	s.handle("/api/sessions/{id}/hibernate", closed, methods{http.MethodPost: s.hibernate})
	s.handle("/api/sessions/{id}/wake", closed, methods{http.MethodPost: s.wake})
	s.handle("/api/sessions/{id}/terminate", closed, methods{http.MethodPost: s.terminate})
	s.handle("/api/sessions/{id}/archive", closed, methods{http.MethodPost: s.archive})

	s.handle("/api/sessions/{id}/snapshots", closed, methods{http.MethodGet: s.snapshots, http.MethodPost: s.takeSnapshot})
	s.handle("/api/sessions/{id}/snapshots/prune", closed, methods{http.MethodPost: s.pruneSnapshots})
	s.handle("/api/sessions/{id}/snapshots/import", closed, methods{http.MethodPost: s.importSnapshot})
	s.handle("/api/sessions/{id}/snapshots/{snapshot}", closed, methods{http.MethodGet: s.showSnapshot, http.MethodDelete: s.deleteSnapshot})
	s.handle("/api/sessions/{id}/snapshots/{snapshot}/diff", closed, methods{http.MethodGet: s.diffSnapshots})
	s.handle("/api/sessions/{id}/snapshots/{snapshot}/export", closed, methods{http.MethodGet: s.exportSnapshot})
	s.handle("/api/sessions/{id}/restore", closed, methods{http.MethodPost: s.restore})
	s.handle("/api/sessions/{id}/revert", closed, methods{http.MethodPost: s.revert})
	s.handle("/api/sessions/{id}/branch", closed, methods{http.MethodPost: s.branch})

	s.handle("/api/sessions/{id}/terminal", closed, methods{http.MethodGet: s.terminal})
	s.handle("/api/sessions/{id}/terminals", closed, methods{http.MethodGet: s.terminals})
	s.handle("/api/sessions/{id}/terminals/{terminal}", closed, methods{http.MethodDelete: s.endTerminal})
	s.handle("/api/sessions/{id}/ports", closed, methods{http.MethodGet: s.ports})
	s.handle("/api/sessions/{id}/ports/{port}/stream", closed, methods{http.MethodGet: s.portStream})
	s.handle("/api/sessions/{id}/files", closed, methods{http.MethodGet: s.getFiles, http.MethodPut: s.putFiles})
	s.handle("/api/sessions/{id}/processes", closed, methods{http.MethodGet: s.processes})

	s.handle("/api/vault-keys", closed, methods{http.MethodGet: s.vaultKeys})
	s.handle("/api/vault-keys/rekey", closed, methods{http.MethodPost: s.rekey})

	s.handle("/", closed, nil)
}
