package session

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Given returns the event that a client's id was given to, or dormouse.ErrNotFound.
func (s *Sessions) Given(ctx context.Context, id dormouse.SessionID, clientID string) (dormouse.Event, error) {
	found, err := s.log.ByClientID(ctx, id, clientID)
	if err != nil {
		return dormouse.Event{}, err
	}
	e, ok := found[clientID]
	if !ok {
		return e, dormouse.ErrNotFound
	}
	return e, nil
}

// Once is Do for a command with an id of its client. It also reports whether the
// session had recorded the command before: of several that send the same, however
// close together, exactly one is told that it was new.
func (s *Sessions) Once(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) (again bool, err error) {
	err = s.do(ctx, id, by, v)
	if errors.Is(err, law.ErrRepeated) {
		return true, nil
	}
	return false, err
}
