// Package memory is a store that lasts as long as its process. It keeps every
// promise of the port but the one about power cuts, has no goroutines and no
// clock, and so can be used under virtual time.
package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Store keeps sessions in maps. Its zero value is empty and ready.
type Store struct {
	mu       sync.RWMutex
	closed   bool                            // guarded by mu
	sessions map[dormouse.SessionID]*session // guarded by mu
}

var _ store.Store = (*Store)(nil)

type session struct {
	epoch     store.Epoch
	index     store.Index
	events    []dormouse.Event
	prompts   map[dormouse.EventID]dormouse.PromptRecord
	ops       map[dormouse.OpID]op
	recorded  int // ops ever recorded
	deadlines []dormouse.Deadline
	chunks    map[dormouse.OpID]map[int]string
	state     store.State
}

// op remembers when it was first recorded, which orders ops.
type op struct {
	dormouse.OpRecord
	nth int
}

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
		if b.Under != nil && !s.sessions[b.Under.Session].admits(b.Under.Epoch) {
			return fmt.Errorf("under %s: %w", b.Under.Session, dormouse.ErrLeaseLost)
		}
		if ss != nil {
			return dormouse.ErrConflict
		}
		ss = &session{epoch: b.Epoch}
		ss.forget()
		ss.take(b)
		if s.sessions == nil {
			s.sessions = make(map[dormouse.SessionID]*session)
		}
		s.sessions[b.Session] = ss
		return nil
	})
}

// Claim takes the right to write a session.
func (s *Store) Claim(ctx context.Context, id dormouse.SessionID) (epoch store.Epoch, err error) {
	err = s.write(ctx, "claim", id, func(ss *session) error {
		if ss == nil {
			return dormouse.ErrNotFound
		}
		ss.epoch++
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
		ss.take(b)
		return nil
	})
}

// Delete removes every row of a session.
func (s *Store) Delete(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	return s.write(ctx, "delete", id, func(ss *session) error {
		if ss != nil && !ss.admits(epoch) {
			return dormouse.ErrLeaseLost
		}
		delete(s.sessions, id)
		return nil
	})
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows store.Rows) error {
	b := store.Batch{Session: id, After: rows.Index.Seq, Rows: &rows}
	if err := b.Validate(); err != nil {
		return fmt.Errorf("rebuild %s: %w", id, err)
	}
	return s.write(ctx, "rebuild", id, func(ss *session) error {
		switch {
		case ss == nil:
			return dormouse.ErrNotFound
		case rows.Index.Seq != ss.index.Seq:
			return dormouse.ErrConflict
		}
		chunks := ss.chunks
		ss.forget()
		ss.take(b)
		for id, pieces := range chunks {
			if ss.ops[id].Status == dormouse.OpOpen {
				ss.chunks[id] = pieces
			}
		}
		return nil
	})
}

// Check reports whether the store is open.
func (s *Store) Check(ctx context.Context) error {
	return s.write(ctx, "check", "", func(*session) error { return nil })
}

// Close refuses everything from now on.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// write calls change with the session, or nil if there is none. A change that
// returns an error has changed nothing.
func (s *Store) write(ctx context.Context, verb string, id dormouse.SessionID, change func(*session) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := context.Cause(ctx)
	if err == nil && s.closed {
		err = dormouse.ErrClosing
	}
	if err == nil {
		err = change(s.sessions[id])
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, id, err)
	}
	return nil
}

// admits reports whether an epoch may write. What nobody claimed nobody writes.
func (ss *session) admits(epoch store.Epoch) bool {
	return ss != nil && epoch != 0 && epoch == ss.epoch
}

// forget drops what is derived.
func (ss *session) forget() {
	ss.prompts = make(map[dormouse.EventID]dormouse.PromptRecord)
	ss.ops = make(map[dormouse.OpID]op)
	ss.chunks = make(map[dormouse.OpID]map[int]string)
	ss.deadlines, ss.state = nil, store.State{}
}

func (ss *session) take(b store.Batch) {
	for _, e := range b.Events {
		e.Time = utc(e.Time)
		e.Payload = slices.Clone(e.Payload)
		ss.events = append(ss.events, e)
	}
	if b.Rows != nil {
		ss.takeRows(*b.Rows)
	}
	for _, c := range b.Chunks {
		if o, ok := ss.ops[c.Op]; ok && o.Status != dormouse.OpOpen {
			continue
		}
		if ss.chunks[c.Op] == nil {
			ss.chunks[c.Op] = make(map[int]string)
		}
		ss.chunks[c.Op][c.N] = c.Text
	}
	if b.State != nil {
		ss.state = *b.State
		ss.state.Data = slices.Clone(b.State.Data)
	}
}

func (ss *session) takeRows(r store.Rows) {
	ss.index = kept(r.Index)
	for _, p := range r.Prompts {
		p.Queued = utc(p.Queued)
		ss.prompts[p.ID] = p
	}
	for _, rec := range r.Ops {
		rec.Started, rec.Finished = utc(rec.Started), utc(rec.Finished)
		nth := ss.recorded
		if old, ok := ss.ops[rec.ID]; ok {
			nth = old.nth
		} else {
			ss.recorded++
		}
		ss.ops[rec.ID] = op{rec, nth}
		if rec.Status != dormouse.OpOpen {
			delete(ss.chunks, rec.ID)
		}
	}
	if r.Deadlines != nil {
		ss.deadlines = slices.Clone(r.Deadlines)
		for i := range ss.deadlines {
			ss.deadlines[i].At = utc(ss.deadlines[i].At)
		}
	}
}

// kept is an index row that shares nothing with the given one.
func kept(i store.Index) store.Index {
	i.Created, i.Updated, i.Due, i.Archived = utc(i.Created), utc(i.Updated), utc(i.Due), utc(i.Archived)
	i.Tags, i.Metadata = slices.Clone(i.Tags), maps.Clone(i.Metadata)
	return i
}

// utc is what a database keeps of a time.
func utc(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// read calls look with the session, or nil if there is none.
func (s *Store) read(ctx context.Context, verb string, id dormouse.SessionID, look func(*session) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	err := context.Cause(ctx)
	if err == nil && s.closed {
		err = dormouse.ErrClosing
	}
	if err == nil {
		err = look(s.sessions[id])
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, id, err)
	}
	return nil
}

// list returns the sessions that keep says, in the order of less, after the
// one with the name after, at most limit.
func (s *Store) list(after dormouse.SessionID, limit int, keep func(store.Index) bool, compare func(a, b store.Index) int) ([]store.Index, error) {
	found := make([]store.Index, 0, len(s.sessions))
	for ss := range maps.Values(s.sessions) {
		if keep(ss.index) {
			found = append(found, kept(ss.index))
		}
	}
	if after != "" {
		last, ok := s.sessions[after]
		if !ok {
			return nil, dormouse.ErrNotFound
		}
		found = slices.DeleteFunc(found, func(i store.Index) bool { return compare(i, last.index) <= 0 })
	}
	slices.SortFunc(found, compare)
	return found[:min(len(found), max(limit, 0))], nil
}
