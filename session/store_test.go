package session_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// faultyStore fails appends on demand.
type faultyStore struct {
	store.Store
	mu     sync.Mutex
	fail   func(b store.Batch) (before, after error)
	linger time.Duration // between what is durable and the answer that it is
	create error         // instead of making a session
	bad    uint64        // the event that cannot be read; 0: none
	badOf  dormouse.SessionID
	reads  map[dormouse.SessionID]int
	claims int
}

// spoil has an event of every log not be as it was written, 0 none.
func (f *faultyStore) spoil(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad, f.badOf = seq, ""
}

// spoilOf has an event of one log not be as it was written, 0 none.
func (f *faultyStore) spoilOf(id dormouse.SessionID, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad, f.badOf = seq, id
}

// slow has the answers to appends take that long.
func (f *faultyStore) slow(linger time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.linger = linger
}

// readOf is how often a log was read.
func (f *faultyStore) readOf(id dormouse.SessionID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads[id]
}

func (f *faultyStore) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := f.Store.Read(ctx, id, after, limit)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads == nil {
		f.reads = make(map[dormouse.SessionID]int)
	}
	f.reads[id]++
	if (f.badOf == "" || f.badOf == id) && f.bad > after && f.bad <= after+uint64(len(events)) {
		return events[:f.bad-after-1], &store.DamageError{Session: id, Seq: f.bad, Err: errors.New("a byte has flipped")}
	}
	return events, err
}

func (f *faultyStore) Claim(ctx context.Context, id dormouse.SessionID, above store.Epoch) (store.Epoch, error) {
	f.mu.Lock()
	f.claims++
	f.mu.Unlock()
	return f.Store.Claim(ctx, id, above)
}

// claimed is how often a session was claimed.
func (f *faultyStore) claimed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims
}

func (f *faultyStore) failCreate(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create = err
}

func (f *faultyStore) Create(ctx context.Context, b store.Batch) error {
	f.mu.Lock()
	err := f.create
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.Create(ctx, b)
}

func (f *faultyStore) set(fail func(b store.Batch) (before, after error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faultyStore) Append(ctx context.Context, b store.Batch) error {
	f.mu.Lock()
	fail, linger := f.fail, f.linger
	f.mu.Unlock()
	defer time.Sleep(linger)
	if fail == nil {
		return f.Store.Append(ctx, b)
	}
	before, after := fail(b)
	if before != nil {
		return before
	}
	if err := f.Store.Append(ctx, b); err != nil {
		return err
	}
	return after
}
