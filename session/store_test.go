package session_test

import (
	"context"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/store"
)

// faultyStore fails appends on demand.
type faultyStore struct {
	store.Store
	mu     sync.Mutex
	fail   func(b store.Batch) (before, after error)
	linger time.Duration // between what is durable and the answer that it is
	create error         // instead of making a session
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
