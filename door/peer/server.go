package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session"
)

// Config is what other servers are let in to.
type Config struct {
	Sessions *session.Sessions
	// Key is the store's.
	Key    []byte
	Logger *slog.Logger
}

// Server answers other servers. It is an http.Handler for what lies below Prefix.
type Server struct {
	Config
	mux http.ServeMux
}

// New returns a door for other servers.
func New(c Config) *Server {
	s := &Server{Config: c}
	s.handle(doPath, s.do)
	s.handle(followPath, s.follow)
	s.handle(whoPath, s.who)
	s.handle(askPath, s.ask)
	s.handle(openPath, s.open)
	return s
}

// ServeHTTP lets a request in.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// answerWithin bounds how long a session may take to answer.
const answerWithin = 60 * time.Second

// handle adds a route for requests that are signed, and meant for us.
func (s *Server) handle(path string, h func(w http.ResponseWriter, r *http.Request, body []byte) error) {
	s.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		body, err := s.admit(w, r)
		if err == nil {
			err = h(w, r, body)
		}
		if err != nil {
			s.refuse(w, r, err)
		}
	})
}

func (s *Server) admit(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	stranger := &door.Refusal{Status: http.StatusUnauthorized, Type: "unauthorized", Message: "only servers of the same store are answered here"}
	sig, ok := signatureOf(r.Header)
	if !ok || !sig.of(s.Key, r.URL.Path) {
		return nil, stranger
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read request: %w: %w", dormouse.ErrInvalid, err)
	}
	if !sig.covers(body) {
		return nil, stranger
	}
	// Who only asks who is there means whoever answers.
	if self, ok := s.Sessions.Self(); r.URL.Path != whoPath && (!ok || self.Incarnation != sig.to) {
		return nil, fmt.Errorf("incarnation %d is no more: %w", sig.to, session.ErrUnreached)
	}
	return body, nil
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	reply := replyTo(err)
	s.Logger.DebugContext(r.Context(), "server refused", "path", r.URL.Path, "status", reply.Status, "error", err)
	_ = answer(w, reply.Status, refusal{Type: reply.Type, Message: reply.Message}) // who is not there any more is not told
}

// replyTo is how an error is told to another server: whole, for it is not a
// stranger.
func replyTo(err error) door.Reply {
	_, elsewhere := errors.AsType[*session.ElsewhereError](err)
	if elsewhere || errors.Is(err, session.ErrUnreached) || errors.Is(err, errForeign) {
		return door.Reply{Status: http.StatusMisdirectedRequest, Type: notMe, Message: err.Error()}
	}
	reply := door.ReplyTo(err)
	if errors.Is(err, session.ErrOtherRequest) {
		reply.Type = otherRequest
	}
	reply.Message = err.Error()
	return reply
}

func answer(w http.ResponseWriter, status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(b)
	return err
}

// do carries out a command for a client of another server.
func (s *Server) do(w http.ResponseWriter, r *http.Request, body []byte) error {
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
	repeated := errors.Is(err, session.ErrRepeated)
	if err != nil && !repeated {
		return err
	}
	return answer(w, http.StatusOK, done{Repeated: repeated})
}

// who says which server this is.
func (s *Server) who(w http.ResponseWriter, _ *http.Request, _ []byte) error {
	self, ok := s.Sessions.Self()
	if !ok {
		return dormouse.ErrLeaseLost
	}
	return answer(w, http.StatusOK, self)
}
