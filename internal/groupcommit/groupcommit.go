// Package groupcommit lets concurrent writes share a transaction. One goroutine takes what
// waits while a commit is in progress, and commits that as one group next.
//
// A write that is refused fails alone, and so does one that makes the whole transaction
// fail: the others of its group are committed without it. A caller that stops waiting is
// never told that nothing changed when something may have.
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Verdict is what to do about a group that was not committed.
type Verdict int

const (
	// Fail answers every write of the group with the error.
	Fail Verdict = iota
	// Retry commits the group again. Nothing has changed, and the same may work later.
	Retry
	// Split commits each write by itself. Nothing has changed, and one of them is the cause.
	Split
)

// How long to wait before a group is committed again: twice as long every time.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// Options are how a Writer commits. Only its goroutine calls the functions.
type Options[J Job] struct {
	// Max is how many writes share a commit at most.
	Max int
	// Commit commits a group in one transaction. A write that it refuses before anything
	// of it was changed gets an error of its own with Refuse; a returned error is that of
	// the whole group.
	Commit func(ctx context.Context, group []J) error
	// Judge says what to do after an error of Commit.
	Judge func(error) Verdict
	// Key, if not nil, orders writes: those with the same key are committed in the order
	// they came, and no two of them in one group.
	Key func(J) string
	// Alone, if not nil, reports whether a write shares its commit with no other.
	Alone func(J) bool
	// Finished, if not nil, is called with each write just before its caller is answered.
	Finished func(J, error)
	// AfterGroup, if not nil, is called when all of a group were answered.
	AfterGroup func(context.Context)
	// Patience bounds how long a group is retried, and how long one that was split goes on
	// with the next write; 0 means that nothing is retried and that all of a split group
	// is tried.
	Patience time.Duration
	// Grace is how long a caller that stops waiting after its commit has begun still waits
	// for the outcome before it is told Unknown; 0 means as long as it takes.
	Grace time.Duration
	// Closed is what a write is answered that comes too late.
	Closed error
	// Unknown is what a caller is told that could not wait for the outcome.
	Unknown error
}

// Job is a write. It embeds Request.
type Job interface{ request() *Request }

// Request is what a Writer keeps of a write.
type Request struct {
	taken atomic.Bool // by the writer, or by a caller that stopped waiting
	left  atomic.Bool // its caller does not wait any more
	err   error       // only the writer's goroutine uses it
	done  chan error
}

func (r *Request) request() *Request { return r }

// Refuse sets the error of a write that changed nothing. It is for Commit to call.
func (r *Request) Refuse(err error) { r.err = err }

// errLeft answers a write that its caller gave up and that has changed nothing.
var errLeft = errors.New("the caller stopped waiting")

// Writer commits the writes of all callers.
type Writer[J Job] struct {
	opts    Options[J]
	jobs    chan J
	closing <-chan struct{} // closed: commit what waits, then stop
	stopped chan struct{}   // closed: nothing is taken any more
	waiting []J             // taken from jobs, and in no group yet; only Run uses it
}

// New returns a Writer that stops when closing is closed and nothing waits. Nothing is
// committed before Run is called.
func New[J Job](closing <-chan struct{}, o Options[J]) *Writer[J] {
	return &Writer[J]{opts: o, jobs: make(chan J, o.Max), closing: closing, stopped: make(chan struct{})}
}

// Write hands a write in and waits until it is durable or refused. A caller may stop waiting
// at once as long as its commit has not begun.
func (w *Writer[J]) Write(ctx context.Context, j J) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r := j.request()
	r.done = make(chan error, 1)
	select {
	case <-w.closing:
		return w.opts.Closed
	default:
	}
	select {
	case w.jobs <- j:
	case <-w.closing:
		return w.opts.Closed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var why error
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-w.stopped:
		why = w.opts.Closed
	}
	if r.taken.CompareAndSwap(false, true) {
		return why
	}
	return w.leave(r, why)
}

// leave waits for the outcome of a write whose commit has begun, for as long as Grace says.
func (w *Writer[J]) leave(r *Request, why error) error {
	r.left.Store(true)
	var timeout <-chan time.Time
	if w.opts.Grace > 0 {
		t := time.NewTimer(w.opts.Grace)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case err := <-r.done:
		if errors.Is(err, errLeft) {
			return why
		}
		return err
	case <-timeout:
		return fmt.Errorf("%w: %w", w.opts.Unknown, why)
	}
}

// Run commits groups until closing is closed and nothing waits.
func (w *Writer[J]) Run(ctx context.Context) {
	defer close(w.stopped)
	for {
		if len(w.waiting) == 0 {
			select {
			case j := <-w.jobs:
				w.waiting = append(w.waiting, j)
			case <-w.closing:
			}
		}
		if group := w.gather(); len(group) > 0 {
			w.flush(ctx, group)
			if w.opts.AfterGroup != nil {
				w.opts.AfterGroup(ctx)
			}
			continue
		}
		select {
		case <-w.closing:
			return
		default:
		}
	}
}

// gather takes the next group from what waits.
func (w *Writer[J]) gather() []J {
	// Those just answered are about to write again: let them share this commit.
	runtime.Gosched()
	for more := true; more && len(w.waiting) < 2*w.opts.Max; {
		select {
		case j := <-w.jobs:
			w.waiting = append(w.waiting, j)
		default:
			more = false
		}
	}
	group := make([]J, 0, min(len(w.waiting), w.opts.Max))
	behind := w.waiting[:0]
	var seen map[string]bool
	if w.opts.Key != nil {
		seen = make(map[string]bool, len(w.waiting))
	}
	for _, j := range w.waiting {
		var key string
		if w.opts.Key != nil {
			key = w.opts.Key(j)
		}
		switch {
		case seen[key], !w.fits(group, j):
			behind = append(behind, j)
		case j.request().taken.CompareAndSwap(false, true):
			group = append(group, j)
		default: // its caller has left
			continue
		}
		if seen != nil {
			seen[key] = true
		}
	}
	clear(w.waiting[len(behind):])
	w.waiting = behind
	return group
}

// fits reports whether a write may join a group.
func (w *Writer[J]) fits(group []J, j J) bool {
	switch {
	case len(group) == 0:
		return true
	case len(group) == w.opts.Max:
		return false
	case w.opts.Alone == nil:
		return true
	}
	return !w.opts.Alone(group[0]) && !w.opts.Alone(j)
}

// flush commits a group and answers it.
func (w *Writer[J]) flush(ctx context.Context, group []J) {
	end := time.Now().Add(w.opts.Patience)
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		for _, j := range group {
			j.request().err = nil
		}
		err := w.opts.Commit(ctx, group)
		if err == nil {
			w.answer(group, nil)
			return
		}
		verdict := w.opts.Judge(err)
		switch {
		case verdict == Retry && time.Now().Add(backoff).Before(end) && w.wait(backoff):
			if group = dropAbandoned(group); len(group) == 0 {
				return
			}
		case verdict == Split && len(group) > 1:
			w.split(ctx, group, end, err)
			return
		default:
			w.answer(group, err)
			return
		}
	}
}

// split commits each write of a group by itself, because one of them made it fail with err
// and must fail alone.
func (w *Writer[J]) split(ctx context.Context, group []J, end time.Time, err error) {
	for i := range group {
		if w.opts.Patience > 0 && time.Now().After(end) {
			w.answer(group[i:], err)
			return
		}
		w.flush(ctx, group[i:i+1])
	}
}

// wait waits, and reports whether to go on.
func (w *Writer[J]) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.closing:
		return false
	}
}

// dropAbandoned answers the writes whose callers have left and returns the others.
func dropAbandoned[J Job](group []J) (rest []J) {
	for _, j := range group {
		if r := j.request(); r.left.Load() {
			r.done <- errLeft
			continue
		}
		rest = append(rest, j)
	}
	return rest
}

// answer tells each caller how its write went; err, if not nil, is what went wrong for all.
func (w *Writer[J]) answer(group []J, err error) {
	for _, j := range group {
		r := j.request()
		if err != nil {
			r.err = err
		}
		if w.opts.Finished != nil {
			w.opts.Finished(j, r.err)
		}
		r.done <- r.err
	}
}
