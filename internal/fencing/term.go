package fencing

import "context"

// Term is a lease as seen by what goes on under it.
type Term interface {
	// Enter counts one more thing that goes on, until leave is called.
	Enter() (leave func())
	// Over ends with the lease.
	Over() context.Context
}

type termKey struct{}

// Under says that what is done with ctx is done under a lease.
func Under(ctx context.Context, t Term) context.Context { return context.WithValue(ctx, termKey{}, t) }

// Outlive returns a context for what goes on after its caller has returned: it does not
// end with ctx, but with the lease that ctx is under, if it is under one. That lease is
// not released before done is called, so that a server which hangs in it is known to
// hold it. The caller must itself still be under the lease.
func Outlive(ctx context.Context) (_ context.Context, done func()) {
	t, ok := ctx.Value(termKey{}).(Term)
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := t.Over()
	stop := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	leave := t.Enter()
	return ctx, func() {
		stop()
		cancel(nil)
		leave()
	}
}
