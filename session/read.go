package session

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// What doors ask for besides commands and events. They speak to sessions only,
// never to the database.
type (
	// Row is a session's row among all sessions.
	Row = dormouse.SessionRow
	// Query selects sessions to list.
	Query = store.Query
)

// Now is the time that sessions go by.
func (s *Sessions) Now() time.Time { return s.config.Clock() }

// Tenant says whose a session is. That never changes, so that a session which is
// loaded here is not looked up.
func (s *Sessions) Tenant(ctx context.Context, id dormouse.SessionID) (string, error) {
	if a := s.loadedActor(id); a != nil {
		select {
		case <-a.ready:
			if a.Err() == nil {
				return a.Tenant(), nil
			}
		default:
		}
	}
	row, err := s.Row(ctx, id)
	return row.Tenant, err
}

// Peek returns a session's state as the log has it now.
func (s *Sessions) Peek(ctx context.Context, id dormouse.SessionID) (law.State, error) {
	if err := id.Validate(); err != nil {
		return law.State{}, dormouse.ErrNotFound
	}
	state, _, row, err := s.log.FoldWithRow(ctx, id)
	if err == nil && row.Damage != "" { // perhaps before what is cached
		state, _, err = s.log.Uncached().Fold(ctx, id)
	}
	return state, err
}

// Remains returns what can be read of a damaged session, whose row says what is wrong
// with it.
func (s *Sessions) Remains(ctx context.Context, id dormouse.SessionID, damage error) (law.State, Row, error) {
	row, err := s.Row(ctx, id)
	if err != nil {
		return law.State{}, Row{}, err
	}
	if row.Damage == "" {
		s.loadNow(id) // so that it is noted, and nothing of it runs
	}
	state, err := s.log.Salvage(ctx, row)
	if err != nil {
		return law.State{}, Row{}, err
	}
	row = law.Index(state)
	row.Damage = history.Damage(damage)
	return state, row, nil
}

// Created returns what a session was made with.
func (s *Sessions) Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error) {
	return s.log.Created(ctx, id)
}

// AgentOf returns what a session runs with from its next turn on.
func (s *Sessions) AgentOf(ctx context.Context, state law.State) (dormouse.AgentConfig, error) {
	return s.log.AgentConfig(ctx, state.Session, state.Config)
}

// Events reads history with its payloads: at most limit events, fewer if they are
// large or many, none only at the end.
func (s *Sessions) Events(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	return s.log.ReadPage(ctx, id, after, limit)
}

// Follow reads a session from a cursor on, live, on whichever server it is
// loaded. A cursor from the future is refused: it is not of this session.
func (s *Sessions) Follow(ctx context.Context, id dormouse.SessionID, after uint64) (*feed.Follower, error) {
	if err := s.fleet.AwaitLease(ctx); err != nil { // a server without a lease must not speak for a log
		return nil, err
	}
	row, err := s.config.Store.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if after > row.Seq {
		return nil, fmt.Errorf("cursor %d is beyond the log, which ends at %d: %w", after, row.Seq, dormouse.ErrInvalid)
	}
	return s.followFrom(ctx, id, after)
}

// followFrom follows a session that is known to have come as far as after.
func (s *Sessions) followFrom(ctx context.Context, id dormouse.SessionID, after uint64) (*feed.Follower, error) {
	if err := s.fleet.AwaitLease(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, dormouse.ErrClosing
	}
	f := s.feeds.Follow(id, after)
	if s.actors[id] == nil {
		s.fleet.LookUp(id)
	}
	return f, nil
}

// Row returns one session's row.
func (s *Sessions) Row(ctx context.Context, id dormouse.SessionID) (Row, error) {
	if err := id.Validate(); err != nil {
		return Row{}, dormouse.ErrNotFound
	}
	row, err := s.config.Store.Session(ctx, id)
	return withNewer(row), err
}

// List returns rows, in the order the query says.
func (s *Sessions) List(ctx context.Context, q Query) ([]Row, error) {
	rows, err := s.config.Store.Sessions(ctx, q)
	for i := range rows {
		rows[i] = withNewer(rows[i])
	}
	return rows, err
}

// Prompt returns one prompt.
func (s *Sessions) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error) {
	return s.config.Store.Prompt(ctx, id, prompt)
}

// Prompts returns the prompts with these statuses, oldest first.
func (s *Sessions) Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error) {
	return s.config.Store.Prompts(ctx, id, statuses...)
}

// Ops returns the newest ops, at most limit.
func (s *Sessions) Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error) {
	return s.config.Store.Ops(ctx, id, limit)
}
