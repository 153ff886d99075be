package session

import (
	"context"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// What doors ask for besides commands and events. They speak to sessions only,
// never to the database.
type (
	// Row is a session's row among all sessions.
	Row = store.Index
	// Query selects sessions to list.
	Query = store.Query
)

// Row returns one session's row.
func (s *Sessions) Row(ctx context.Context, id dormouse.SessionID) (Row, error) {
	if err := id.Validate(); err != nil {
		return Row{}, dormouse.ErrNotFound
	}
	return s.deps.Store.Session(ctx, id)
}

// List returns rows, newest first.
func (s *Sessions) List(ctx context.Context, q Query) ([]Row, error) {
	return s.deps.Store.Sessions(ctx, q)
}

// Prompt returns one prompt.
func (s *Sessions) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error) {
	return s.deps.Store.Prompt(ctx, id, prompt)
}

// Prompts returns the prompts with these statuses, oldest first.
func (s *Sessions) Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error) {
	return s.deps.Store.Prompts(ctx, id, statuses...)
}

// Ops returns the newest ops, at most limit.
func (s *Sessions) Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error) {
	return s.deps.Store.Ops(ctx, id, limit)
}
