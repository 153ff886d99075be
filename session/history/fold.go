package history

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// Fold loads a session's state. It also returns up to where the cache went.
func (r Reader) Fold(ctx context.Context, id dormouse.SessionID) (law.State, uint64, error) {
	s, from, _, err := r.FoldWithRow(ctx, id)
	return s, from, err
}

// FoldWithRow is Fold, together with the session's row, against which it checks the log.
//
// A log that ends before its row says is damaged: an append writes both or neither. The row
// is read after the log, so that an append may have come in between, and the log is read
// again before that is reported. To a session that the caller has claimed no append can
// have come.
//
// A row that says less than the log has is wrong, and the log is whole. The server that has
// claimed the session rebuilds its rows.
func (r Reader) FoldWithRow(ctx context.Context, id dormouse.SessionID) (s law.State, from uint64, row dormouse.SessionRow, err error) {
	if s, from, err = r.foldLog(ctx, id); err != nil {
		return law.State{}, 0, dormouse.SessionRow{}, err
	}
	if row, err = r.currentRow(ctx, id); err != nil {
		return law.State{}, 0, dormouse.SessionRow{}, err
	}
	if s.Seq == row.Seq {
		return s, from, row, nil
	}
	said := row.Seq
	if s.Seq < said {
		s, err = r.foldTail(ctx, id, s)
	} else { // or the database was restored between the two reads
		s, from, err = r.foldLog(ctx, id)
	}
	if err == nil {
		row, err = r.currentRow(ctx, id)
	}
	if err == nil && s.Seq < said {
		err = damaged(id, s.Seq+1, fmt.Errorf("there is no such row, and its session's row says that the log goes to event %d", said))
	}
	if err != nil {
		return law.State{}, 0, dormouse.SessionRow{}, err
	}
	return s, from, row, nil
}

// foldLog folds the log: the cached fold and the tail after it.
func (r Reader) foldLog(ctx context.Context, id dormouse.SessionID) (law.State, uint64, error) {
	cached, err := r.Store.State(ctx, id)
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
	s, err = r.foldTail(ctx, id, s)
	return s, from, err
}

// foldTail folds the events after a state.
func (r Reader) foldTail(ctx context.Context, id dormouse.SessionID, s law.State) (law.State, error) {
	for {
		events, more, err := r.readFolds(ctx, id, s.Seq)
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
// whether there may be more. It stops when the payloads have grown large.
func (r Reader) readFolds(ctx context.Context, id dormouse.SessionID, after uint64) (events []dormouse.Event, more bool, err error) {
	if events, err = r.Store.Read(ctx, id, after, Page); err != nil {
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
		whole, err := r.Inflate(ctx, e)
		switch {
		case err == nil:
			events[i] = whole
		case foldsWithoutBody(e.Type) && IsLost(err):
			// One lost body must not make the whole session unreadable. When its turn
			// comes a prompt is cancelled, and the event says why; a wake-up and a child
			// that can no longer be made are left out.
			r.Logger.ErrorContext(ctx, "event unreadable", "session", id, "seq", e.Seq, "type", e.Type, "error", err)
		case IsLost(err):
			return nil, false, damaged(id, e.Seq, err)
		default:
			return nil, false, err
		}
		if size += len(whole.Payload); size > maxPageBytes {
			return events[:i+1], true, nil
		}
	}
	return events, len(events) == Page, nil
}

// Uncached is the reader without cached folds. The cached fold says nothing of whether the
// events before it can be read.
func (r Reader) Uncached() Reader {
	r.Store = uncached{r.Store}
	return r
}

// uncached is a store without cached folds.
type uncached struct{ store.Store }

func (uncached) State(context.Context, dormouse.SessionID) (dormouse.StateCache, error) {
	return dormouse.StateCache{}, nil
}
