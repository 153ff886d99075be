// Package memory is a store that lasts as long as its process. It keeps every
// promise of the port except durability. It has no goroutines, and its clock is
// that of package time, so it can be used under virtual time.
package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Store keeps sessions in maps. Its zero value is empty, ready, and for one
// server alone; Server gives what several share.
type Store struct {
	once sync.Once
	base *base

	me     uint64 // guarded by base.mu; the incarnation that claims; 0: none
	closed bool   // guarded by base.mu
}

var _ store.Store = (*Store)(nil)

// base is what all servers of a store share.
type base struct {
	mu        sync.RWMutex
	sessions  map[dormouse.SessionID]*session // guarded by mu
	documents map[store.DocumentRef]*document // guarded by mu
	servers   map[uint64]*lease               // guarded by mu
	joined    uint64                          // guarded by mu; the last incarnation given
	listeners map[*listener]bool              // guarded by mu
	key       [32]byte
	born      time.Time
}

// ready makes the zero value one that can be used.
func (s *Store) ready() {
	s.once.Do(func() {
		if s.base != nil {
			return
		}
		s.base = &base{
			sessions:  make(map[dormouse.SessionID]*session),
			documents: make(map[store.DocumentRef]*document),
			servers:   make(map[uint64]*lease),
			listeners: make(map[*listener]bool),
			born:      time.Now(),
		}
		_, _ = rand.Read(s.base.key[:]) // never fails
	})
}

// Check reports whether the store is open.
func (s *Store) Check(ctx context.Context) error {
	return s.write(ctx, "check store", "", func(*session) error { return nil })
}

// Close refuses everything from now on that is asked through this value.
func (s *Store) Close() error {
	s.ready()
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	s.closed = true
	for l := range s.base.listeners {
		l.signal()
	}
	return nil
}

// refusal says why nothing can be asked now.
func (s *Store) refusal(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.closed {
		return dormouse.ErrClosing
	}
	return nil
}

// write calls change with the session, or nil if there is none. A change that
// returns an error has changed nothing.
func (s *Store) write(ctx context.Context, verb string, id dormouse.SessionID, change func(*session) error) error {
	s.ready()
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	err := s.refusal(ctx)
	if err == nil {
		err = change(s.base.sessions[id])
	}
	return wrap(err, verb, id)
}

// read calls look with the session, or nil if there is none.
func (s *Store) read(ctx context.Context, verb string, id dormouse.SessionID, look func(*session) error) error {
	s.ready()
	s.base.mu.RLock()
	defer s.base.mu.RUnlock()
	err := s.refusal(ctx)
	if err == nil {
		err = look(s.base.sessions[id])
	}
	return wrap(err, verb, id)
}

// wrap says what was being done to a session, if it was to one.
func wrap(err error, verb string, id dormouse.SessionID) error {
	switch {
	case err == nil:
		return nil
	case id == "":
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s %s: %w", verb, id, err)
}

// list returns the sessions that keep says, in the order of compare, after the
// one with the name after, at most limit.
func (s *Store) list(after dormouse.SessionID, limit int, keep func(dormouse.SessionRow) bool, compare func(a, b dormouse.SessionRow) int) ([]dormouse.SessionRow, error) {
	found := make([]dormouse.SessionRow, 0, len(s.base.sessions))
	for ss := range maps.Values(s.base.sessions) {
		if keep(ss.index) {
			found = append(found, cloned(ss.index))
		}
	}
	if after != "" {
		last, ok := s.base.sessions[after]
		if !ok {
			return nil, dormouse.ErrNotFound
		}
		found = slices.DeleteFunc(found, func(i dormouse.SessionRow) bool { return compare(i, last.index) <= 0 })
	}
	slices.SortFunc(found, compare)
	return found[:min(len(found), max(limit, 0))], nil
}
