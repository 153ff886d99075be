package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// PageEvents and pageBytes are how much goes into one page of an archive.
const (
	PageEvents = 256
	pageBytes  = 1 << 20
)

// errSkipped means that nothing of a session was written.
var errSkipped = errors.New("left to a newer program")

func (x *exporter) session(ctx context.Context, id dormouse.SessionID) error {
	s := x.from.Store
	epoch, err := s.Epoch(ctx, id)
	if err != nil {
		return err
	}
	row, err := s.Session(ctx, id)
	if err != nil {
		return err
	}
	if row.Needs > dormouse.LogVersion { // what is open in it this program cannot tell
		return fmt.Errorf("%w: %w", errSkipped, &dormouse.NewerLogError{Session: id, Needs: row.Needs})
	}
	if err := x.to.Session(archive.Session{ID: id, Epoch: epoch, Needs: row.Needs}); err != nil {
		return err
	}
	var state law.State
	corrupt := false
	for {
		events, err := s.Read(ctx, id, state.Seq, PageEvents)
		damage, damaged := errors.AsType[*store.DamageError](err)
		if err != nil && !damaged {
			return err
		}
		if damaged && len(events) == 0 {
			if state, err = x.damaged(ctx, id, state, damage); err != nil {
				return err
			}
			if corrupt = damage.Seq == 0; corrupt {
				break // it is unknown what follows
			}
			continue
		}
		if len(events) == 0 {
			break
		}
		events, newer := foldable(id, events)
		for len(events) > 0 {
			n := pageOf(events, func(e dormouse.Event) int { return len(e.Payload) })
			if state, err = x.events(ctx, id, state, events[:n]); err != nil {
				return err
			}
			events = events[n:]
		}
		if newer != nil { // which the row did not say, or it had been skipped
			x.progress.Note("%s: event %d and what follows it are not in the archive: %v", id, state.Seq+1, newer)
			if state, err = x.damaged(ctx, id, state, &store.DamageError{Session: id, Err: newer}); err != nil {
				return err
			}
			corrupt = true
			break
		}
	}
	switch {
	case corrupt:
	case state.Seq < row.Seq:
		x.progress.Note("%s: its log ends at event %d, and its row says that it goes to %d", id, state.Seq, row.Seq)
		if state, err = x.damaged(ctx, id, state, &store.DamageError{Session: id, Seq: state.Seq + 1}); err != nil {
			return err
		}
	case state.Seq > row.Seq: // the log has it all
		x.progress.Note("%s: its row says that the log ends at event %d, and it goes to %d; a rebuild mends that", id, row.Seq, state.Seq)
	}
	for _, op := range state.Ops {
		if err := x.chunks(ctx, id, op.ID); err != nil {
			return err
		}
	}
	return x.to.End()
}

// foldable is those of events that are before the first of a newer program, and why it stops
// there if it does.
func foldable(id dormouse.SessionID, events []dormouse.Event) ([]dormouse.Event, error) {
	for i, e := range events {
		if needs := e.Type.Version(); needs > dormouse.LogVersion {
			return events[:i], &dormouse.NewerLogError{Session: id, Needs: needs, Type: e.Type}
		}
	}
	return events, nil
}

// damaged writes an event that is not as it was written, with a payload that is lost, so
// that readers of the archive know that there was one.
func (x *exporter) damaged(ctx context.Context, id dormouse.SessionID, state law.State, damage *store.DamageError) (law.State, error) {
	e := dormouse.Event{ID: dormouse.EventID(fmt.Sprintf("%sdamaged%d", dormouse.EventPrefix, state.Seq+1)), Type: dormouse.EventDamaged, Actor: dormouse.ActorServer, Time: time.Unix(0, 0).UTC()}
	if damage.Found != nil {
		e = *damage.Found
	}
	if e.Type.Version() > dormouse.LogVersion { // as far as can be told
		e.Type = dormouse.EventDamaged
	}
	e.Seq = state.Seq + 1
	x.progress.Note("%s: event %d is damaged", id, e.Seq)
	lost := dormouse.DigestOf(append([]byte("damaged "), e.Payload...))
	e.Blob, e.Payload = lost, nil
	state.Seq = e.Seq
	x.progress.Update("export: session %d, now at event %d of %s", x.sessions+1, state.Seq, id)
	return state, errors.Join(x.to.Lost(lost), x.to.Events([]dormouse.Event{e}), context.Cause(ctx))
}

// pageOf is how many of items make a page.
func pageOf[T any](items []T, size func(T) int) int {
	total := 0
	for i, item := range items {
		if total += size(item); total > pageBytes {
			return i + 1
		}
	}
	return len(items)
}

// events writes a page of the log after the blobs that it names, and folds it.
func (x *exporter) events(ctx context.Context, id dormouse.SessionID, state law.State, page []dormouse.Event) (law.State, error) {
	written := make(map[dormouse.Digest]bool)
	for _, e := range page {
		if e.Seq != state.Seq+1 {
			return state, fmt.Errorf("event %d follows on event %d", e.Seq, state.Seq)
		}
		if e.Blob != "" {
			b, err := x.from.Blobs.Get(ctx, e.Blob)
			switch {
			case err == nil && !written[e.Blob]:
				err = x.to.Blob(b)
			case (errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, blob.ErrCorrupt)) && !written[e.Blob]:
				x.progress.Note("%s: the payload of event %d is lost: %v", id, e.Seq, err)
				err = x.to.Lost(e.Blob)
			}
			if err != nil {
				return state, err
			}
			written[e.Blob], e.Payload = true, b
		}
		state = law.Apply(state, e)
	}
	x.progress.Update("export: session %d, now at event %d of %s", x.sessions+1, state.Seq, id)
	return state, x.to.Events(page)
}

// chunks writes what was seen of an op that is open.
func (x *exporter) chunks(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) error {
	chunks, err := x.from.Store.Chunks(ctx, id, op)
	if err != nil {
		return err
	}
	for len(chunks) > 0 {
		n := min(pageOf(chunks, func(c store.Chunk) int { return len(c.Text) }), archive.MaxRecords)
		if err := x.to.Chunks(chunks[:n]); err != nil {
			return err
		}
		chunks = chunks[n:]
	}
	return nil
}
