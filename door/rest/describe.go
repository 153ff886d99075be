package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// describeRequest is a merge patch: an absent field stays as it is, null removes it.
type describeRequest struct {
	Title    json.RawMessage `json:"title"`
	Tags     json.RawMessage `json:"tags"`
	Metadata json.RawMessage `json:"metadata"`
}

// describeSession changes title, tags and metadata of a session, in any phase.
func (s *Server) describeSession(c call) error {
	var req describeRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	v, err := req.verb()
	if err != nil {
		return err
	}
	return s.command(c, v)
}

func (req describeRequest) verb() (v law.Describe, err error) {
	if v.Title, err = patched[string]("title", req.Title); err != nil {
		return v, err
	}
	if v.Tags, err = patched[[]string]("tags", req.Tags); err != nil {
		return v, err
	}
	if len(req.Metadata) > 0 && absent(req.Metadata) {
		return v, fmt.Errorf("field \"metadata\" must be an object; a key whose value is null goes: %w", dormouse.ErrInvalid)
	}
	metadata, err := patched[map[string]*string]("metadata", req.Metadata)
	if metadata != nil {
		v.Metadata = *metadata
	}
	return v, err
}

// patched reads a field of a merge patch. It is nil if the field is absent.
func patched[T any](field string, raw json.RawMessage) (*T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v := new(T)
	err := json.Unmarshal(raw, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		e.Field = field
	}
	if err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// deleteSession ends a session and removes it. The status is 204 if it is gone and 202 if
// it will be: an accepted deletion cannot fail any more.
func (s *Server) deleteSession(c call) error {
	if err := c.decode(&empty{}); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, _, err := s.peekAll(ctx, c)
	if err != nil {
		return err
	}
	if !state.Deleted {
		if err := s.Sessions.Do(ctx, state.Session, c.Who.Actor, law.Delete{}); err != nil {
			return err
		}
	}
	row, err := s.awaitDeletion(ctx, state.Session)
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		c.NoContent()
		return nil
	case err != nil:
		return err
	}
	return c.Answer(http.StatusAccepted, row)
}

// awaitDeletion polls a session that is being deleted until it is gone, or until
// GoneWithin has passed.
func (s *Server) awaitDeletion(ctx context.Context, id dormouse.SessionID) (session.Row, error) {
	patience := time.NewTimer(s.GoneWithin)
	defer patience.Stop()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		row, err := s.Sessions.Row(ctx, id)
		if err != nil {
			return row, err
		}
		select {
		case <-time.After(wait):
		case <-patience.C:
			return row, nil
		case <-ctx.Done():
			return row, nil
		}
	}
}
