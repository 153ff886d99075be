package memory

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Create stores the first events of a session.
func (s *Store) Create(ctx context.Context, b store.Batch) error {
	if err := b.ValidateFirst(); err != nil {
		return fmt.Errorf("create %s: %w", b.Session, err)
	}
	return s.begin(ctx, "create", b)
}

// Import stores the first events of a session that has lived elsewhere.
func (s *Store) Import(ctx context.Context, b store.Batch) error {
	if err := b.ValidateImport(); err != nil {
		return fmt.Errorf("import %s: %w", b.Session, err)
	}
	return s.begin(ctx, "import", b)
}

func (s *Store) begin(ctx context.Context, verb string, b store.Batch) error {
	return s.write(ctx, verb, b.Session, func(ss *session) error {
		if b.Under != nil && !s.base.sessions[b.Under.Session].admits(b.Under.Epoch) {
			return fmt.Errorf("under %s: %w", b.Under.Session, store.ErrStaleSender)
		}
		if ss != nil {
			return dormouse.ErrConflict
		}
		ss = &session{epoch: b.Epoch}
		ss.forget()
		if err := ss.repeats(b); err != nil {
			return err
		}
		ss.apply(b)
		s.base.sessions[b.Session] = ss
		s.base.changed(b)
		return nil
	})
}

// Claim takes the right to write a session.
func (s *Store) Claim(ctx context.Context, id dormouse.SessionID, above store.Epoch) (epoch store.Epoch, err error) {
	err = s.write(ctx, "claim", id, func(ss *session) error {
		if ss == nil {
			return dormouse.ErrNotFound
		}
		if err := s.base.claim(ss, s.me, above); err != nil {
			return err
		}
		epoch = ss.epoch
		return nil
	})
	return epoch, err
}

// Append adds a batch to a session's log.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	if err := b.Validate(); err != nil {
		return fmt.Errorf("append to %s: %w", b.Session, err)
	}
	return s.write(ctx, "append to", b.Session, func(ss *session) error {
		switch {
		case ss == nil:
			return dormouse.ErrNotFound
		case !ss.admits(b.Epoch):
			return dormouse.ErrLeaseLost
		case b.After != ss.index.Seq:
			return dormouse.ErrConflict
		}
		if b.Under != nil && !s.base.sessions[b.Under.Session].admits(b.Under.Epoch) {
			return fmt.Errorf("under %s: %w", b.Under.Session, store.ErrStaleSender)
		}
		if err := ss.repeats(b); err != nil {
			return err
		}
		ss.apply(b)
		s.base.changed(b)
		return nil
	})
}

// Mark sets what the index row says of a damaged log.
func (s *Store) Mark(ctx context.Context, id dormouse.SessionID, epoch store.Epoch, damage string) error {
	return s.write(ctx, "mark", id, func(ss *session) error {
		if !ss.admits(epoch) {
			return dormouse.ErrLeaseLost
		}
		ss.index.Damage = damage
		return nil
	})
}

// Delete removes every row of a session.
func (s *Store) Delete(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	return s.write(ctx, "delete", id, func(ss *session) error {
		if ss != nil && !ss.admits(epoch) {
			return dormouse.ErrLeaseLost
		}
		delete(s.base.sessions, id)
		return nil
	})
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	b := store.Batch{Session: id, After: rows.Session.Seq, Rows: &rows}
	if err := b.Validate(); err != nil {
		return fmt.Errorf("rebuild %s: %w", id, err)
	}
	return s.write(ctx, "rebuild", id, func(ss *session) error {
		switch {
		case ss == nil:
			return dormouse.ErrNotFound
		case rows.Session.Seq != uint64(len(ss.events)) || rows.Session.Seq < ss.index.Seq:
			return dormouse.ErrConflict
		}
		if err := (&session{}).repeats(b); err != nil {
			return err
		}
		chunks := ss.chunks
		ss.forget()
		ss.apply(b)
		for id, pieces := range chunks {
			if ss.ops[id].Status == dormouse.OpOpen {
				ss.chunks[id] = pieces
			}
		}
		return nil
	})
}
