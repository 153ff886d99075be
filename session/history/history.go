// Package history reads the logs of sessions: their events with the payloads that lie in
// the blob store, and the state that they fold to. What it cannot read it reports as damage
// of that session, never as an empty value.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// Page is how many events are read at once.
const Page = 1000

// maxPageBytes is the size of the payloads that are held at once.
const maxPageBytes = 4 << 20

// Reader reads the logs of all sessions of a store.
type Reader struct {
	Store  store.Store
	Blobs  blob.Store
	Logger *slog.Logger
}

// Read returns events with their payloads.
func (r Reader) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := r.Store.Read(ctx, id, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", id, err)
	}
	for i := range events {
		e, err := r.Inflate(ctx, events[i])
		if IsLost(err) {
			return nil, damaged(id, e.Seq, err)
		}
		if err != nil {
			return nil, err
		}
		events[i] = e
	}
	return events, nil
}

// ReadPage is Read for callers that pass events on: it stops when a page has grown large,
// so that a page of the largest events fits in memory. It returns at least one event if
// there is one that can be read: a damaged log is read as far as possible.
func (r Reader) ReadPage(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	const atOnce = 256
	events, err := r.Store.Read(ctx, id, after, min(limit, atOnce))
	if err != nil && (len(events) == 0 || !errors.Is(err, dormouse.ErrDamaged)) {
		return nil, fmt.Errorf("read events of %s: %w", id, err)
	}
	size := 0
	for i := range events {
		if events[i], err = r.InflateOrMark(ctx, id, events[i]); err != nil {
			return nil, err
		}
		if size += len(events[i].Payload); size > maxPageBytes {
			return events[:i+1], nil
		}
	}
	return events, nil
}

// ErrNoBody means that the blob of an event is lost but its row is not: the log can be
// folded without the text that a person or a program wrote.
var ErrNoBody = errors.New("its stored body cannot be read")

// Event reads one event with its payload. With ErrNoBody it returns the event without it.
func (r Reader) Event(ctx context.Context, id dormouse.SessionID, seq uint64) (dormouse.Event, error) {
	events, err := r.Store.Read(ctx, id, seq-1, 1)
	switch {
	case err != nil:
		return dormouse.Event{}, fmt.Errorf("read event %d of %s: %w", seq, id, err)
	case len(events) == 0:
		return dormouse.Event{}, damaged(id, seq, errNoRow)
	}
	e, err := r.Inflate(ctx, events[0])
	if IsLost(err) {
		err = fmt.Errorf("event %d of %s: %w: %s", seq, id, ErrNoBody, err.Error())
	}
	return e, err
}

// Created reads a session's first event.
func (r Reader) Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error) {
	events, err := r.Read(ctx, id, 0, 1)
	if err != nil {
		return dormouse.Created{}, err
	}
	if len(events) == 0 {
		return dormouse.Created{}, fmt.Errorf("%s has no events: %w", id, dormouse.ErrNotFound)
	}
	return law.Payload[dormouse.Created](events[0]), nil
}

// AgentConfig reads the agent configuration that the event at a seq set, or that of the
// session's first event if it is 0.
func (r Reader) AgentConfig(ctx context.Context, id dormouse.SessionID, at uint64) (dormouse.AgentConfig, error) {
	if at == 0 {
		created, err := r.Created(ctx, id)
		return created.Agent, err
	}
	events, err := r.Read(ctx, id, at-1, 1)
	if err != nil {
		return dormouse.AgentConfig{}, err
	}
	if len(events) == 0 || events[0].Type != dormouse.AgentConfigured {
		return dormouse.AgentConfig{}, fmt.Errorf("%s has no configuration at %d: %w", id, at, dormouse.ErrNotFound)
	}
	return law.Payload[dormouse.AgentChange](events[0]).Agent, nil
}

// SeenText is the text of an open model call that followers were shown.
func (r Reader) SeenText(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) (string, error) {
	chunks, err := r.Store.Chunks(ctx, id, op)
	if err != nil {
		return "", fmt.Errorf("read what was seen of %s: %w", op, err)
	}
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString(c.Text)
	}
	return b.String(), nil
}

// A command with an id of its client is carried out once, however often it is sent: as long
// as the session lives, the same id is the same request, and the same id with another body
// is refused. The ids are rows beside the log and not in State, which would grow with every
// one of them; they are looked up before a command is decided.

// ByClientID finds the events that ids of clients were given to.
func (r Reader) ByClientID(ctx context.Context, id dormouse.SessionID, ids ...string) (map[string]dormouse.Event, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	seqs, err := r.Store.ClientIDs(ctx, id, ids...)
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	found := make(map[string]dormouse.Event, len(seqs))
	for name, seq := range seqs {
		events, err := r.Store.Read(ctx, id, seq-1, 1)
		if err == nil && len(events) == 0 {
			err = damaged(id, seq, errNoRow)
		}
		if err != nil {
			return nil, err
		}
		e, err := r.Inflate(ctx, events[0])
		if IsLost(err) && e.Type == dormouse.PromptQueued { // its row has the digest of the body, which is enough
			var row dormouse.PromptRecord
			row, err = r.Store.Prompt(ctx, id, e.ID)
			e.Payload = dormouse.Encode(law.BodyOnly{Body: row.Body})
		}
		if err != nil && !IsLost(err) { // a lost payload compares as an empty one
			return nil, err
		}
		found[name] = e
	}
	return found, nil
}

// Exists returns nil if there is such a session, or dormouse.ErrNotFound.
func (r Reader) Exists(ctx context.Context, id dormouse.SessionID) error {
	_, err := r.Store.Session(ctx, id)
	return err
}
