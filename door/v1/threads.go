package v1

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// Thread is a thread of a session as the API shows it.
type Thread struct {
	Type        string               `json:"type"`
	ID          dormouse.ThreadID    `json:"id"`
	Session     dormouse.SessionID   `json:"session_id"`
	WorkflowRun *string              `json:"workflow_run_id"`
	Status      dormouse.Status      `json:"status"`
	Agent       json.RawMessage      `json:"agent"`
	Parent      *dormouse.ThreadID   `json:"parent_thread_id"`
	Created     time.Time            `json:"created_at"`
	Updated     time.Time            `json:"updated_at"`
	Archived    *time.Time           `json:"archived_at"`
	Usage       *dormouse.UsageTotal `json:"usage"`
	Stats       *Stats               `json:"stats"`
}

// thread shows one thread. What it used is known as long as it is the only one.
func (s *Server) thread(state law.State, agent json.RawMessage, t law.Thread) Thread {
	primary := dormouse.PrimaryThread(state.Session)
	out := Thread{
		Type: "session_thread", ID: t.ID, Session: state.Session, Status: law.ThreadStatus(state, t), Agent: agent,
		Created: t.Created, Updated: state.Updated,
	}
	if out.Created.IsZero() {
		out.Created = state.Created
	}
	if t.ID != primary {
		out.Parent = &primary
	}
	if !t.Archived.IsZero() {
		out.Archived, out.Updated = &t.Archived, t.Archived
	}
	if len(state.Threads) == 1 {
		usage, stats := dormouse.Total(state.Usage, state.CostMicros, s.active(state)), s.stats(state)
		out.Usage, out.Stats = &usage, &stats
	}
	return out
}

// threadAgent is the agent of a session as a thread shows it.
func threadAgent(agent json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(agent, &fields) != nil {
		return agent
	}
	delete(fields, "multiagent")
	return dormouse.Encode(fields)
}

// threadOf finds the thread a request is about.
func (s *Server) threadOf(ctx context.Context, c call, row session.Row) (law.State, law.Thread, error) {
	id := dormouse.ThreadID(c.R.PathValue("thread_id"))
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return state, law.Thread{}, err
	}
	t := state.Thread(id)
	if t == nil {
		return state, law.Thread{}, fmt.Errorf("thread %q: %w", shorten(string(id)), dormouse.ErrNotFound)
	}
	return state, *t, nil
}

func (s *Server) listThreads(c call) error {
	q := c.query()
	limit, wanted := q.limitOrZero(usualEvents, mostEvents), q.list("statuses", statuses...)
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	l := newList("threads", string(row.Session))
	after := dormouse.ThreadID(l.after(q))
	if q.err != nil {
		return q.err
	}
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return err
	}
	config, err := s.Sessions.AgentOf(ctx, state)
	if err != nil {
		return err
	}
	agent := threadAgent(describeAgent(state, config))
	threads := state.Threads
	if i := slices.IndexFunc(threads, func(t law.Thread) bool { return t.ID == after }); after != "" {
		threads = threads[i+1:]
	}
	var found []Thread
	for _, t := range threads {
		if shown := s.thread(state, agent, t); len(wanted) == 0 || slices.Contains(wanted, string(shown.Status)) {
			found = append(found, shown)
		}
	}
	return c.Answer(http.StatusOK, pageOf(l, limit, found, func(t Thread) string { return string(t.ID) }))
}

func (s *Server) showThread(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	return s.answerThread(ctx, c, row)
}

func (s *Server) answerThread(ctx context.Context, c call, row session.Row) error {
	state, t, err := s.threadOf(ctx, c, row)
	if err != nil {
		return err
	}
	config, err := s.Sessions.AgentOf(ctx, state)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, s.thread(state, threadAgent(describeAgent(state, config)), t))
}

func (s *Server) threadEvents(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	_, t, err := s.threadOf(ctx, c, row)
	if err != nil {
		return err
	}
	q := c.query()
	l := listed{view: viewOf(row.Session), limit: q.limitOrZero(usualEvents, mostEvents), list: newList("events", string(row.Session), string(t.ID))}
	l.thread = t.ID
	return s.listEvents(ctx, c, row, q, l)
}

func (s *Server) threadStream(c call) error {
	return s.follow(c, dormouse.ThreadID(c.R.PathValue("thread_id")))
}

func (s *Server) archiveThread(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	_, t, err := s.threadOf(ctx, c, row)
	if err != nil {
		return err
	}
	if err := s.Sessions.Do(ctx, row.Session, c.Who.Actor, law.ArchiveThread{Thread: t.ID}); err != nil {
		return wrongState(err)
	}
	return s.answerThread(ctx, c, row)
}

// sessionRoutes is every way to sessions, their events and their threads.
func (s *Server) sessionRoutes() {
	s.handle("/v1/sessions", methods{http.MethodGet: s.listSessions, http.MethodPost: s.createSession})
	s.handle("/v1/sessions/{session_id}", methods{
		http.MethodGet: s.showSession, http.MethodPost: s.updateSession, http.MethodDelete: s.deleteSession,
	})
	s.handle("/v1/sessions/{session_id}/archive", methods{http.MethodPost: s.archiveSession})
	s.handle("/v1/sessions/{session_id}/events", methods{http.MethodGet: s.events, http.MethodPost: s.send})
	s.handle("/v1/sessions/{session_id}/events/stream", methods{http.MethodGet: s.stream})
	s.handle("/v1/sessions/{session_id}/resources", methods{http.MethodGet: s.listResources})
	s.handle("/v1/sessions/{session_id}/threads", methods{http.MethodGet: s.listThreads})
	s.handle("/v1/sessions/{session_id}/threads/{thread_id}", methods{http.MethodGet: s.showThread})
	s.handle("/v1/sessions/{session_id}/threads/{thread_id}/events", methods{http.MethodGet: s.threadEvents})
	s.handle("/v1/sessions/{session_id}/threads/{thread_id}/stream", methods{http.MethodGet: s.threadStream})
	s.handle("/v1/sessions/{session_id}/threads/{thread_id}/archive", methods{http.MethodPost: s.archiveThread})
}
