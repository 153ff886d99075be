package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

// spillOver is the size from which a payload is stored as a blob.
const spillOver = 64 << 10

// ErrNotSpilled means that a payload could not be stored as a blob now, so that no row
// names it.
var ErrNotSpilled = errors.New("blobs cannot be reached")

// Spill stores large payloads as blobs, before any row names them.
func Spill(ctx context.Context, blobs blob.Store, events []dormouse.Event) ([]dormouse.Event, error) {
	stored := events
	for i, e := range events {
		if len(e.Payload) <= spillOver {
			continue
		}
		if &stored[0] == &events[0] {
			stored = append([]dormouse.Event(nil), events...)
		}
		d, err := blobs.Put(ctx, e.Payload)
		if errors.Is(err, dormouse.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrNotSpilled, err)
		}
		if err != nil {
			return nil, fmt.Errorf("keep payload of event %d: %w", e.Seq, err)
		}
		stored[i].Blob, stored[i].Payload = d, nil
	}
	return stored, nil
}

// Inflate fetches a payload that was too large for its row.
func (r Reader) Inflate(ctx context.Context, e dormouse.Event) (dormouse.Event, error) {
	if e.Blob == "" || len(e.Payload) > 0 {
		return e, nil
	}
	b, err := r.Blobs.Get(ctx, e.Blob)
	if err != nil {
		return e, fmt.Errorf("fetch payload of event %d: %w", e.Seq, err)
	}
	e.Payload, e.Blob = b, ""
	return e, nil
}

// InflateOrMark is Inflate for callers that must not fail because of one lost payload:
// the payload of such an event is dormouse.Lost.
func (r Reader) InflateOrMark(ctx context.Context, id dormouse.SessionID, e dormouse.Event) (dormouse.Event, error) {
	whole, err := r.Inflate(ctx, e)
	if IsLost(err) {
		r.Logger.ErrorContext(ctx, "event unreadable", "session", id, "seq", e.Seq, "type", e.Type, "error", err)
		e.Payload, e.Blob = dormouse.Encode(dormouse.Lost{Blob: e.Blob}), ""
		return e, nil
	}
	return whole, err
}

// IsLost reports whether a payload will never be read again, whatever we do.
func IsLost(err error) bool {
	return errors.Is(err, blob.ErrCorrupt) || errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, dormouse.ErrDamaged)
}

// foldsWithoutBody reports whether events of this type hold what people or agents wrote,
// so that the state is right without it.
func foldsWithoutBody(t dormouse.EventType) bool {
	return t == dormouse.PromptQueued || t == dormouse.WakeupScheduled || t == dormouse.ChildSpawned
}

// checkPayload refuses a payload that would fold as an empty value.
func checkPayload(id dormouse.SessionID, e dormouse.Event) error {
	if len(e.Payload) > 0 && !json.Valid(e.Payload) {
		return damaged(id, e.Seq, errNoJSON)
	}
	return nil
}
