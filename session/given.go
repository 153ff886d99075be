package session

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// What clients give an id to is asked for once, however often it is sent: as long
// as the session lives, the same id is the same request, and the same id with
// another body is refused. The ids are rows beside the log and not in State, which
// would grow with every one of them; whoever decides looks them up first.

// given finds what the ids in a verb were given to.
func (a *Actor) given(ctx context.Context, v law.Verb) (map[string]dormouse.Event, error) {
	ids := law.ClientIDs(v)
	if len(ids) == 0 {
		return nil, nil
	}
	return given(ctx, a.deps, a.id, ids...)
}

func given(ctx context.Context, deps *Config, id dormouse.SessionID, ids ...string) (map[string]dormouse.Event, error) {
	seqs, err := deps.Store.ClientIDs(ctx, id, ids...)
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	found := make(map[string]dormouse.Event, len(seqs))
	for name, seq := range seqs {
		events, err := deps.Store.Read(ctx, id, seq-1, 1)
		if err == nil && len(events) == 0 {
			err = unreadable(id, seq, errNoRow)
		}
		if err != nil {
			return nil, err
		}
		e, err := inflate(ctx, deps.Blobs, events[0])
		if isLost(err) && e.Type == dormouse.PromptQueued { // what its row keeps of it is enough
			var row dormouse.PromptRecord
			row, err = deps.Store.Prompt(ctx, id, e.ID)
			e.Payload = dormouse.Encode(law.BodyOnly{Body: row.Body})
		}
		if err != nil && !isLost(err) { // what is lost is the same as nothing
			return nil, err
		}
		found[name] = e
	}
	return found, nil
}

// Given returns the event that a client's id was given to, or dormouse.ErrNotFound.
func (s *Sessions) Given(ctx context.Context, id dormouse.SessionID, clientID string) (dormouse.Event, error) {
	found, err := given(ctx, s.deps, id, clientID)
	if err != nil {
		return dormouse.Event{}, err
	}
	e, ok := found[clientID]
	if !ok {
		return e, dormouse.ErrNotFound
	}
	return e, nil
}

// Once is Do for what has an id of its client's. It also reports whether the session
// had recorded it before: of those who send the same, however close together, one is
// told that it was new.
func (s *Sessions) Once(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) (again bool, err error) {
	err = s.do(ctx, id, by, v)
	if errors.Is(err, ErrRepeated) {
		return true, nil
	}
	return false, err
}
