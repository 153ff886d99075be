package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// page is how many events are read at once.
const page = 1000

// enough is the size of the payloads that are held at once.
const enough = 4 << 20

// spillOver is the size from which a payload rests in the blob store.
const spillOver = 64 << 10

// fold loads a session's state. It also returns up to where the cache went.
func fold(ctx context.Context, deps *Config, id dormouse.SessionID) (law.State, uint64, error) {
	s, from, _, err := foldRow(ctx, deps, id)
	return s, from, err
}

// foldRow is fold, together with the session's row, which it holds the log against.
//
// A log that ends before its row says is damaged: an append writes both or neither. The row
// is read after the log, so that somebody may have appended in between, and the log is
// looked at again before that is said. Nobody can have who has claimed the session.
//
// A row that says less than the log has is wrong, and the log is whole. Whoever has claimed
// the session writes its rows anew.
func foldRow(ctx context.Context, deps *Config, id dormouse.SessionID) (s law.State, from uint64, row Row, err error) {
	if s, from, err = foldLog(ctx, deps, id); err != nil {
		return law.State{}, 0, Row{}, err
	}
	if row, err = current(ctx, deps.Store, id); err != nil {
		return law.State{}, 0, Row{}, err
	}
	if s.Seq == row.Seq {
		return s, from, row, nil
	}
	said := row.Seq
	if s.Seq < said {
		s, err = foldTail(ctx, deps, id, s)
	} else { // or the database was put back between the two
		s, from, err = foldLog(ctx, deps, id)
	}
	if err == nil {
		row, err = current(ctx, deps.Store, id)
	}
	if err == nil && s.Seq < said {
		err = unreadable(id, s.Seq+1, fmt.Errorf("there is no such row, and its session's row says that the log goes to event %d", said))
	}
	if err != nil {
		return law.State{}, 0, Row{}, err
	}
	return s, from, row, nil
}

// foldLog folds the log: the cached fold and the tail after it.
func foldLog(ctx context.Context, deps *Config, id dormouse.SessionID) (law.State, uint64, error) {
	cached, err := deps.Store.State(ctx, id)
	if err != nil {
		return law.State{}, 0, fmt.Errorf("load cached state of %s: %w", id, err)
	}
	s, err := law.OpenState(cached)
	if err != nil {
		s = law.State{} // the log has it all
	}
	if err := law.Foldable(id, s); err != nil {
		return law.State{}, 0, err
	}
	from := s.Seq
	s, err = foldTail(ctx, deps, id, s)
	return s, from, err
}

// foldTail folds what follows on a state.
func foldTail(ctx context.Context, deps *Config, id dormouse.SessionID, s law.State) (law.State, error) {
	for {
		events, more, err := readFolds(ctx, deps, id, s.Seq)
		if err != nil {
			return law.State{}, fmt.Errorf("replay %s: %w", id, err)
		}
		crash.At(crash.LeaseReplay)
		for _, e := range events {
			s = law.Apply(s, e)
		}
		if !more {
			return s, nil
		}
	}
}

// readFolds reads events with those payloads that Apply reads, and reports
// whether there may be more. It stops where they have grown large.
func readFolds(ctx context.Context, deps *Config, id dormouse.SessionID, after uint64) (events []dormouse.Event, more bool, err error) {
	if events, err = deps.Store.Read(ctx, id, after, page); err != nil {
		return nil, false, err
	}
	if err := law.Readable(id, events); err != nil {
		return nil, false, err
	}
	size := 0
	for i, e := range events {
		if !law.Folds(e.Type) {
			continue
		}
		if err := checkPayload(id, e); err != nil {
			return nil, false, err
		}
		if e.Blob == "" {
			continue
		}
		whole, err := inflate(ctx, deps.Blobs, e)
		switch {
		case err == nil:
			events[i] = whole
		case bears(e.Type) && isLost(err):
			// One body that is lost must not take the session with it. When its turn
			// comes a prompt is cancelled, and that says why; a wake-up and a child
			// nobody can make any more are not there.
			deps.Logger.ErrorContext(ctx, "event unreadable", "session", id, "seq", e.Seq, "type", e.Type, "error", err)
		case isLost(err):
			return nil, false, unreadable(id, e.Seq, err)
		default:
			return nil, false, err
		}
		if size += len(whole.Payload); size > enough {
			return events[:i+1], true, nil
		}
	}
	return events, len(events) == page, nil
}

// bears reports whether events of this type hold what people or agents wrote, so
// that the session is whole without it.
func bears(t dormouse.EventType) bool {
	return t == dormouse.PromptQueued || t == dormouse.WakeupScheduled || t == dormouse.ChildSpawned
}

// errUnkept means that a payload could not be kept now, so that no row names it.
var errUnkept = errors.New("blobs cannot be reached")

// passes reports whether a write that failed surely changed nothing and may be
// tried again when there is room, when blobs can be reached, or by who has the right to.
func passes(err error) bool {
	return errors.Is(err, dormouse.ErrFull) || errors.Is(err, errUnkept) || errors.Is(err, ErrStaleSender)
}

// spill puts large payloads into the blob store, before any row names them.
func spill(ctx context.Context, blobs blob.Store, events []dormouse.Event) ([]dormouse.Event, error) {
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
			err = fmt.Errorf("%w: %w", errUnkept, err)
		}
		if err != nil {
			return nil, fmt.Errorf("keep payload of event %d: %w", e.Seq, err)
		}
		stored[i].Blob, stored[i].Payload = d, nil
	}
	return stored, nil
}

// inflate brings back a payload that was too large for its row.
func inflate(ctx context.Context, blobs blob.Store, e dormouse.Event) (dormouse.Event, error) {
	if e.Blob == "" || len(e.Payload) > 0 {
		return e, nil
	}
	b, err := blobs.Get(ctx, e.Blob)
	if err != nil {
		return e, fmt.Errorf("fetch payload of event %d: %w", e.Seq, err)
	}
	e.Payload, e.Blob = b, ""
	return e, nil
}

// isLost reports whether a payload will never be read again, whatever we do.
func isLost(err error) bool {
	return errors.Is(err, blob.ErrCorrupt) || errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, dormouse.ErrDamaged)
}

// inflateOrMourn is inflate for those to whom one lost payload must not hide all
// the others: it says in its place that it is lost.
func inflateOrMourn(ctx context.Context, deps *Config, id dormouse.SessionID, e dormouse.Event) (dormouse.Event, error) {
	whole, err := inflate(ctx, deps.Blobs, e)
	if isLost(err) {
		deps.Logger.ErrorContext(ctx, "event unreadable", "session", id, "seq", e.Seq, "type", e.Type, "error", err)
		e.Payload, e.Blob = dormouse.Encode(dormouse.Lost{Blob: e.Blob}), ""
		return e, nil
	}
	return whole, err
}

// read returns events with their payloads.
func read(ctx context.Context, deps *Config, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := deps.Store.Read(ctx, id, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", id, err)
	}
	for i := range events {
		e, err := inflate(ctx, deps.Blobs, events[i])
		if isLost(err) {
			return nil, unreadable(id, e.Seq, err)
		}
		if err != nil {
			return nil, err
		}
		events[i] = e
	}
	return events, nil
}

// readSome is read for those who hand events on: it stops where a page has grown
// large, so that a page of the largest events fits in memory. It returns at least
// one event if there is one that can be read: a damaged log is read as far as it goes.
func readSome(ctx context.Context, deps *Config, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	const atOnce = 256
	events, err := deps.Store.Read(ctx, id, after, min(limit, atOnce))
	if err != nil && (len(events) == 0 || !errors.Is(err, dormouse.ErrDamaged)) {
		return nil, fmt.Errorf("read events of %s: %w", id, err)
	}
	size := 0
	for i := range events {
		if events[i], err = inflateOrMourn(ctx, deps, id, events[i]); err != nil {
			return nil, err
		}
		if size += len(events[i].Payload); size > enough {
			return events[:i+1], nil
		}
	}
	return events, nil
}

// seenText is what was seen of an open model call.
func seenText(ctx context.Context, s store.Loader, id dormouse.SessionID, op dormouse.OpID) (string, error) {
	chunks, err := s.Chunks(ctx, id, op)
	if err != nil {
		return "", fmt.Errorf("read what was seen of %s: %w", op, err)
	}
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString(c.Text)
	}
	return b.String(), nil
}

// Rebuild lays a session's rows out again from its log alone.
func Rebuild(ctx context.Context, s store.Store, blobs blob.Store, id dormouse.SessionID) (dormouse.Rows, error) {
	deps := &Config{Store: s, Blobs: blobs, Logger: slog.New(slog.DiscardHandler)}
	var state law.State
	prompts := make(map[dormouse.EventID]int)
	ops := make(map[dormouse.OpID]int)
	given := make(map[string]bool)
	var all dormouse.Rows
	for more := true; more; {
		var events []dormouse.Event
		var err error
		if events, more, err = readFolds(ctx, deps, id, state.Seq); err != nil {
			return all, fmt.Errorf("replay %s: %w", id, err)
		}
		var rows dormouse.Rows
		state, rows = law.Project(state, events)
		for _, r := range rows.Prompts {
			if i, ok := prompts[r.ID]; ok {
				all.Prompts[i] = r
				continue
			}
			prompts[r.ID], all.Prompts = len(all.Prompts), append(all.Prompts, r)
		}
		for _, r := range rows.Ops {
			if i, ok := ops[r.ID]; ok {
				all.Ops[i] = r
				continue
			}
			ops[r.ID], all.Ops = len(all.Ops), append(all.Ops, r)
		}
		for _, g := range rows.ClientIDs {
			if !given[g.ID] {
				given[g.ID], all.ClientIDs = true, append(all.ClientIDs, g)
			}
		}
		all.Session, all.SnapshotBlobs = rows.Session, rows.SnapshotBlobsAfter(all.SnapshotBlobs)
	}
	return all, nil
}
