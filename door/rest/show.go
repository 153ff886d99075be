package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// Page is a list of sessions, newest first.
type Page struct {
	Sessions []session.Row `json:"sessions"`
	// Next is the cursor of the next page; empty when this is the last.
	Next dormouse.SessionID `json:"next,omitempty"`
}

func (s *Server) list(c *call) error {
	q, err := c.query("limit", "after", "phase")
	if err != nil {
		return err
	}
	const usual, most = 50, 200
	n, err := limit(q, usual, most)
	if err != nil {
		return err
	}
	phase := dormouse.Phase(q.Get("phase"))
	if q.Has("phase") && !slices.Contains(dormouse.Phases(), phase) {
		return fmt.Errorf("there is no phase %q; it must be one of %v: %w", shorten(string(phase)), dormouse.Phases(), dormouse.ErrInvalid)
	}
	ctx, cancel := c.ctx()
	defer cancel()
	rows, err := s.Sessions.List(ctx, session.Query{
		Tenant: c.who.Tenant, Phase: phase, After: dormouse.SessionID(q.Get("after")), Limit: n + 1,
	})
	if errors.Is(err, dormouse.ErrNotFound) {
		return fmt.Errorf("parameter \"after\" names no session: %w", dormouse.ErrInvalid)
	}
	if err != nil {
		return err
	}
	page := Page{Sessions: rows}
	if len(rows) > n {
		page.Sessions, page.Next = rows[:n], rows[n-1].Session
	}
	if page.Sessions == nil {
		page.Sessions = []session.Row{}
	}
	return c.answer(http.StatusOK, page)
}

// Session is everything there is to see of a session besides its events.
type Session struct {
	session.Row
	Agent      dormouse.AgentConfig `json:"agent"`
	Recovery   dormouse.Recovery    `json:"recovery"`
	SleepAfter string               `json:"sleep_after"`
	Threads    []Thread             `json:"threads"`
	Sandbox    Sandbox              `json:"sandbox"`
	Queue      int                  `json:"queue"`
	Attention  string               `json:"attention,omitempty"`
	Ended      string               `json:"ended,omitempty"`
	Usage      dormouse.UsageTotal  `json:"usage"`
}

// Sandbox is where a session's sandbox stands.
type Sandbox struct {
	Phase      string `json:"phase"`
	Generation uint64 `json:"generation"`
}

// Thread is what one thread works on and what waits for it.
type Thread struct {
	ID    dormouse.ThreadID `json:"id"`
	Queue int               `json:"queue"`
	Turn  *Turn             `json:"turn,omitempty"`
}

// Turn is the work in progress.
type Turn struct {
	ID      dormouse.TurnID `json:"id"`
	Attempt int             `json:"attempt"`
	// Blocked says what it waits for: people or recovery.
	Blocked string `json:"blocked,omitempty"`
	// Until is when the next attempt may start.
	Until time.Time `json:"until,omitzero"`
	// Waiting are the tool calls that only people can answer.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Waiting is a tool call that waits for an answer.
type Waiting struct {
	ID    dormouse.EventID `json:"id"`
	Gate  dormouse.Gate    `json:"gate"`
	Name  string           `json:"name,omitempty"`
	Input json.RawMessage  `json:"input,omitempty"`
}

func (s *Server) show(c *call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.ctx()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	made, err := s.Sessions.Created(ctx, row.Session)
	if err != nil {
		return err
	}
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return err
	}
	view := Session{
		Row: row, Agent: made.Agent, Recovery: made.Recovery, SleepAfter: made.SleepAfter.String(),
		Sandbox: Sandbox{Phase: string(state.Sandbox.Phase), Generation: state.Sandbox.Generation},
		Usage: dormouse.UsageTotal{
			InputTokens: state.Usage.InputTokens, OutputTokens: state.Usage.OutputTokens,
			CacheReadInputTokens: state.Usage.CacheReadInputTokens, ActiveSeconds: state.Active.Seconds(),
		},
	}
	// The row and the state are read one after the other; what is shown is one of
	// them, so that it cannot contradict itself.
	view.Phase, view.Status, view.Seq, view.Updated = session.PhaseOf(state), session.StatusOf(state), state.Seq, state.Updated
	if view.Sandbox.Phase == "" {
		view.Sandbox.Phase = "cold"
	}
	if state.Attention != nil {
		view.Attention = state.Attention.Reason
	}
	if state.Terminated != nil {
		view.Ended = state.Terminated.Reason
	}
	for _, t := range state.Threads {
		view.Queue += len(t.Queue)
		shown := Thread{ID: t.ID, Queue: len(t.Queue)}
		if shown.Turn, err = s.turn(ctx, state, t.Turn); err != nil {
			return err
		}
		view.Threads = append(view.Threads, shown)
	}
	return c.answer(http.StatusOK, view)
}

func (s *Server) turn(ctx context.Context, state session.State, t *session.Turn) (*Turn, error) {
	if t == nil {
		return nil, nil
	}
	shown := &Turn{ID: t.ID, Attempt: t.Attempt, Blocked: t.Blocked, Until: t.Until}
	waiting := make(map[dormouse.EventID]*Waiting)
	for _, u := range t.Uses {
		if u.Gate != dormouse.GateNone {
			shown.Waiting = append(shown.Waiting, Waiting{ID: u.ID, Gate: u.Gate})
		}
	}
	for i := range shown.Waiting {
		waiting[shown.Waiting[i].ID] = &shown.Waiting[i]
	}
	// The calls stand near the end of the log: what waits was asked last.
	const page = 200
	for before := state.Seq; len(waiting) > 0 && before > 0; {
		after := before - min(before, page)
		events, err := s.Sessions.Events(ctx, state.Session, after, page)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			w := waiting[e.ID]
			if w == nil || e.Type != dormouse.AgentToolUse && e.Type != dormouse.AgentCustomToolUse {
				continue
			}
			var use dormouse.ToolUse
			if err := json.Unmarshal(e.Payload, &use); err != nil {
				return nil, fmt.Errorf("decode event %d: %w", e.Seq, err)
			}
			w.Name, w.Input = use.Name, use.Input
			delete(waiting, e.ID)
		}
		before = after
	}
	return shown, nil
}

// ops lists the newest ops of a session.
func (s *Server) ops(c *call) error {
	q, err := c.query("limit")
	if err != nil {
		return err
	}
	const usual, most = 50, 1000
	n, err := limit(q, usual, most)
	if err != nil {
		return err
	}
	ctx, cancel := c.ctx()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	ops, err := s.Sessions.Ops(ctx, row.Session, n)
	if err != nil {
		return err
	}
	if ops == nil {
		ops = []dormouse.OpRecord{}
	}
	return c.answer(http.StatusOK, struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}{ops})
}
