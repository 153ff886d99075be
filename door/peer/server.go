package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

// commander gives commands to the sessions that are loaded on this server.
type commander interface {
	DoHere(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
}

// member knows which server this is, and which other servers of the store hold a
// lease.
type member interface {
	Self() (fleet.Server, bool)
	FleetNow() (time.Time, error)
	Lives(ctx context.Context, incarnation uint64) error
}

// Sessions is what this door asks of sessions. Each part of it is declared in the
// file that uses it.
type Sessions interface {
	commander
	member
	streamer
	visitor
}

// Config is what the door needs.
type Config struct {
	Sessions Sessions
	// Key is the store's.
	Key    []byte
	Logger *slog.Logger
}

// Server answers other servers. It is an http.Handler for what lies below Prefix.
type Server struct {
	Config
	mux    http.ServeMux
	routes []string
	nonces nonces

	strangers, doubts throttle

	mu    sync.Mutex
	lives map[uint64]bool // guarded by mu; the incarnations that this process is or was
}

// New returns a door for other servers.
func New(c Config) *Server {
	s := &Server{Config: c, lives: make(map[uint64]bool)}
	s.handle(doPath, s.do)
	s.handle(followPath, s.follow)
	s.handle(whoPath, s.who)
	s.handle(askPath, s.ask)
	s.handle(openPath, s.open)
	return s
}

// Routes returns every route, each as a method and a path.
func (s *Server) Routes() []string { return slices.Clone(s.routes) }

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// answerWithin bounds how long a session may take to answer.
const answerWithin = 60 * time.Second

// handle adds a route for signed requests. They get a signed answer, strangers one
// that is not signed.
func (s *Server) handle(path string, h func(a *answerer, r *http.Request, body []byte) error) {
	route := http.MethodPost + " " + path
	s.routes = append(s.routes, route)
	s.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
		sig, ok := signatureOf(r.Header)
		if !ok || !sig.of(s.Key, r.Method, r.URL.RequestURI()) {
			s.refuseStranger(w, r)
			return
		}
		connlimit.InUse(r.Context())
		a := &answerer{w: w, key: s.Key, to: sig}
		body, err := s.admit(a, r)
		if err == nil {
			err = h(a, r, body)
		}
		if err != nil {
			s.refuse(a, r, err)
		}
	})
}

// refuseStranger answers a stranger, or a server of another version.
func (s *Server) refuseStranger(w http.ResponseWriter, r *http.Request) {
	if missed, ok := s.strangers.allow(); ok {
		s.Logger.DebugContext(r.Context(), "unsigned request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "more", missed)
	}
	b, err := encode(refusal{Type: "unauthorized", Message: "only servers of the same store and version are answered here"})
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write(b) // it may have left
}

// admit checks that a signed request is for this server, recent and not a repeated
// one, and reads its body.
//
// A refusal names the incarnation that refuses, because that decides what it proves.
// The process that is, or was, the incarnation that the request is for knows whether
// it has admitted it. Any other process does not know: an attacker on the path may
// have had the request carried out, and sent it here to get a signed refusal.
func (s *Server) admit(a *answerer, r *http.Request) ([]byte, error) {
	gone := fmt.Errorf("incarnation %d is not here: %w", a.to.to, fleet.ErrUnreached)
	self, _ := s.Sessions.Self()
	if !s.isIncarnation(self.Incarnation, a.to.to) {
		a.by = self.Incarnation
		return nil, gone
	}
	a.by = a.to.to
	now, _ := s.Sessions.FleetNow() // without a lease it is good enough to refuse by
	if err := s.nonces.take(a.to.nonce, a.to.time, now.UnixMicro()); err != nil {
		return nil, err
	}
	if self, ok := s.Sessions.Self(); !ok || self.Incarnation != a.to.to {
		return nil, gone
	}
	if err := s.Sessions.Lives(r.Context(), a.to.from); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(a.w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read request: %w: %w", dormouse.ErrInvalid, err)
	}
	if !a.to.covers(body) {
		return nil, fmt.Errorf("the body is not the one that was signed: %w", fleet.ErrUnreached)
	}
	if self, ok := s.Sessions.Self(); !ok || self.Incarnation != a.to.to { // reading the body may have taken long
		return nil, gone
	}
	return body, nil
}

// maxLives bounds the incarnations that are remembered. A process that had more
// has lost its lease that often.
const maxLives = 1024

// isIncarnation reports whether this process, which is self now, is or was an
// incarnation.
func (s *Server) isIncarnation(self, incarnation uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if self != 0 && !s.lives[self] {
		if len(s.lives) >= maxLives {
			clear(s.lives)
		}
		s.lives[self] = true
	}
	return s.lives[incarnation]
}

func (s *Server) refuse(a *answerer, r *http.Request, err error) {
	reply := replyTo(err)
	switch {
	case reply.Type != inDoubt:
		s.Logger.DebugContext(r.Context(), "server refused", "path", r.URL.Path, "status", reply.Status, "error", err)
	default: // there may be an attacker on the path, or a clock is wrong
		if missed, ok := s.doubts.allow(); ok {
			s.Logger.WarnContext(r.Context(), "request of a server refused", "path", r.URL.Path, "from", a.to.from, "remote", r.RemoteAddr, "error", err, "more", missed)
		}
	}
	_ = a.answer(reply.Status, refusal{Type: reply.Type, Message: reply.Message}) // it may have left
}

// replyTo is the reply that another server gets for an error. It has the error's full
// text, since that server is no stranger.
func replyTo(err error) door.Reply {
	_, elsewhere := errors.AsType[*fleet.ElsewhereError](err)
	if elsewhere || errors.Is(err, fleet.ErrUnreached) || errors.Is(err, errForeign) {
		return door.Reply{Status: http.StatusMisdirectedRequest, Type: notMe, Message: err.Error()}
	}
	if errors.Is(err, errStale) || errors.Is(err, errReplayed) || errors.Is(err, errTooManyNonces) {
		return door.Reply{Status: http.StatusConflict, Type: inDoubt, Message: err.Error()}
	}
	reply := door.ReplyTo(err)
	switch {
	case errors.Is(err, law.ErrOtherRequest):
		reply.Type = otherRequest
	case errors.Is(err, fleet.ErrStaleSender):
		reply.Type = staleSender
	}
	reply.Message = err.Error()
	return reply
}

// answerer answers one request.
type answerer struct {
	w   http.ResponseWriter
	key []byte
	to  signature
	by  uint64 // the incarnation that answers
}

// begin sends the headers of an answer. What is written then is sealed, and complete
// once the sealer is closed.
func (a *answerer) begin(status int) *sealer {
	p := prove(a.key, a.to, a.by, status)
	a.w.Header().Set(answerHeader, p.header())
	a.w.Header().Set("Content-Type", "application/octet-stream")
	a.w.WriteHeader(status)
	return newSealer(a.w, p.key(a.key, toAsker))
}

func (a *answerer) answer(status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	out := a.begin(status)
	if _, err := out.Write(b); err != nil {
		return err
	}
	return out.Close()
}

// do carries out a command for a client of another server.
func (s *Server) do(a *answerer, r *http.Request, body []byte) error {
	var req do
	if err := decode(body, &req); err != nil {
		return err
	}
	v, err := decodeVerb(req.Verb, req.Args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), answerWithin, dormouse.ErrUnknownOutcome)
	defer cancel()
	err = s.Sessions.DoHere(ctx, req.Session, req.By, v)
	repeated := errors.Is(err, law.ErrRepeated)
	if err != nil && !repeated {
		return err
	}
	return a.answer(http.StatusOK, done{Repeated: repeated})
}

// who answers which server this is.
func (s *Server) who(a *answerer, _ *http.Request, _ []byte) error {
	self, ok := s.Sessions.Self()
	if !ok {
		return dormouse.ErrLeaseLost
	}
	return a.answer(http.StatusOK, self)
}
