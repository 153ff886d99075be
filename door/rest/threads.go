package rest

import (
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// threads lists a session's threads, the primary one first.
func (s *Server) threads(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	calls, err := s.gatedCalls(ctx, state)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, struct {
		Threads []Thread `json:"threads"`
	}{threadsOf(state, calls)})
}

func threadsOf(state law.State, calls gatedCalls) []Thread {
	all := make([]Thread, 0, len(state.Threads))
	for _, t := range state.Threads {
		shown := Thread{ID: t.ID, Queue: len(t.Queue)}
		if t.Turn != nil {
			shown.Turn = &Turn{
				ID: t.Turn.ID, Attempt: t.Turn.Attempt, Blocked: t.Turn.Blocked, Until: t.Turn.Until, Waiting: calls.waiting(t.Turn),
			}
		}
		all = append(all, shown)
	}
	return all
}

type openRequest struct {
	ID string `json:"id"`
}

// openThread adds a thread: a queue and a turn of its own beside the others. The
// same name twice is the same thread.
func (s *Server) openThread(c call) error {
	var req openRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if err := checkName("id", req.ID); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	id, status := dormouse.ThreadID(named(dormouse.ThreadPrefix, state.Session, req.ID)), http.StatusCreated
	if state.Thread(id) != nil {
		status = http.StatusOK
	} else if err := s.Sessions.Do(ctx, state.Session, c.Who.Actor, law.OpenThread{Thread: id}); err != nil {
		return err
	}
	return c.Answer(status, Thread{ID: id})
}

// maxName bounds the name a client gives something of its own.
const maxName = 128

func checkName(field, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("field %q is over %d bytes: %w", field, maxName, dormouse.ErrInvalid)
	}
	return nil
}

// named is the id of what a client calls name: the same name is the same thing.
// Without a name it is a new thing each time.
func named(prefix string, id dormouse.SessionID, name string) string {
	if name == "" {
		return session.NewID(prefix)
	}
	return dormouse.DeriveID(prefix, string(id), "client", name)
}
