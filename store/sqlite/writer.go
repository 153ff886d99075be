package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// group is how many writes share a commit at most.
const group = 256

// writer is the only goroutine that changes the database. What waits while a
// commit is on its way to the disk shares the next one.
type writer struct {
	conn    *conn
	jobs    chan *job
	closing chan struct{} // closed: take what waits, then stop
	stopped chan struct{} // closed: nobody takes anything any more
	failed  chan error

	failure error // only run uses it
	pages   int   // written since the log was last moved; only run uses it
}

// job is one write, run inside a transaction it shares with others.
type job struct {
	// do refuses with an error of refused before it changes anything. Any other
	// error spoils the transaction, and the job is run again in one of its own.
	do     func(context.Context, *conn) error
	logs   bool // adds events
	queues bool // adds a prompt

	taken atomic.Bool // by the writer or by a caller who stopped waiting
	err   error
	done  chan error
}

func newWriter(c *conn) *writer {
	return &writer{
		conn:    c,
		jobs:    make(chan *job, group),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
		failed:  make(chan error, 1),
	}
}

// write hands a job in and waits for it to be durable or refused. A caller may
// leave only while nobody has begun: afterwards the outcome is a moment away.
func (w *writer) write(ctx context.Context, j *job) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	j.done = make(chan error, 1)
	select {
	case <-w.closing:
		return dormouse.ErrClosing
	default:
	}
	select {
	case w.jobs <- j:
	case <-w.closing:
		return dormouse.ErrClosing
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var left error
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		left = context.Cause(ctx)
	case <-w.stopped:
		left = dormouse.ErrClosing
	}
	if j.taken.CompareAndSwap(false, true) {
		return left
	}
	return <-j.done
}

// run commits groups until closing is closed and nothing waits.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	jobs := make([]*job, 0, group)
	for {
		select {
		case j := <-w.jobs:
			jobs = w.gather(append(jobs[:0], j))
		case <-w.closing:
			if jobs = w.gather(jobs[:0]); len(jobs) == 0 {
				return
			}
		}
		w.flush(ctx, jobs)
		w.shorten(ctx)
	}
}

// The log is moved into the database when it has so many pages, and when that was
// not possible again after some more. A longer log costs a longer pause, a shorter
// one moves the same pages again and again.
const (
	logPages = 4000
	someMore = 500
)

// shorten moves the log into the database when it is long. A failed sync of the
// database cannot be tried again: what earlier checkpoints gave it, and no sync has
// reached yet, would be taken for written, and the log begun anew over it.
func (w *writer) shorten(ctx context.Context) {
	if w.failure != nil {
		return
	}
	n, err := w.conn.written()
	if w.pages += n; w.pages < logPages && err == nil {
		return
	}
	var left int64
	if err == nil {
		left, err = w.conn.checkpoint(ctx, "PASSIVE")
	}
	if w.pages = 0; left > 0 || err != nil {
		w.pages = logPages - someMore
	}
	if failedDisk(err) {
		_ = w.stop(err) // nobody waits for it
	}
}

// failedSync reports whether a sync failed, which a long transaction may need before
// its end.
func failedSync(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code() == lib.SQLITE_IOERR_FSYNC || e.Code() == lib.SQLITE_IOERR_DIR_FSYNC)
}

// failedDisk reports whether the disk did not take what it was given. After what it
// could not read, or had no room for, nothing has changed.
func failedDisk(err error) bool {
	if code(err) != lib.SQLITE_IOERR {
		return false
	}
	e, _ := errors.AsType[*sqlite.Error](err)
	return e.Code() != lib.SQLITE_IOERR_READ && e.Code() != lib.SQLITE_IOERR_SHORT_READ
}

// gather adds what else waits, less what was given up.
func (w *writer) gather(jobs []*job) []*job {
	// Those just answered are about to ask again: let them share this commit.
	runtime.Gosched()
	for len(jobs) < cap(jobs) {
		select {
		case j := <-w.jobs:
			jobs = append(jobs, j)
			continue
		default:
		}
		break
	}
	kept := jobs[:0]
	for _, j := range jobs {
		if j.taken.CompareAndSwap(false, true) {
			kept = append(kept, j)
		}
	}
	return kept
}

// flush commits jobs and answers them.
func (w *writer) flush(ctx context.Context, jobs []*job) {
	err := w.failure
	if err == nil {
		err = w.commit(ctx, jobs)
	}
	if errors.Is(err, errSpoiled) && len(jobs) > 1 {
		// Nothing changed. Whoever spoiled it must fail alone.
		for i := range jobs {
			w.flush(ctx, jobs[i:i+1])
		}
		return
	}
	for _, j := range jobs {
		if err != nil {
			j.err = err
		}
		j.done <- j.err
	}
}

// errSpoiled marks a transaction that was rolled back whole.
var errSpoiled = errors.New("nothing was written")

// commit runs jobs in one transaction.
func (w *writer) commit(ctx context.Context, jobs []*job) error {
	if _, err := w.conn.exec(ctx, begin); err != nil {
		return fmt.Errorf("begin: %w", explain(err))
	}
	logs := false
	for _, j := range jobs {
		logs = logs || j.logs
		if j.err = j.do(ctx, w.conn); j.err != nil && !refused(j.err) {
			w.rollback(ctx)
			if failedSync(j.err) {
				return w.stop(j.err)
			}
			return fmt.Errorf("%w: %w", errSpoiled, explain(j.err))
		}
		if j.queues && j.err == nil {
			crash.At(crash.PromptWriting)
		}
	}
	if logs {
		crash.At(crash.StoreFlushing)
	}
	if _, err := w.conn.exec(ctx, commit); err != nil {
		w.rollback(ctx)
		return w.judge(err)
	}
	if err := w.conn.place.check(); err != nil {
		return w.stop(err)
	}
	if logs {
		crash.At(crash.StoreFlushed)
	}
	return nil
}

// rollback leaves no transaction behind. SQLite may have ended it already, and
// then says so.
func (w *writer) rollback(ctx context.Context) {
	clear(w.conn.rows)
	_, _ = w.conn.exec(ctx, rollback)
}

// judge says what a failed commit means. A full disk refuses the commit record
// itself. After any other failure the record may be on the disk, and after one
// of the disk's own nothing that is asked of it later can be believed.
func (w *writer) judge(err error) error {
	switch code(err) {
	case lib.SQLITE_FULL, lib.SQLITE_BUSY:
		return fmt.Errorf("%w: commit: %w", errSpoiled, explain(err))
	case lib.SQLITE_IOERR:
		return w.stop(err)
	}
	return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
}

// stop ends writing for good after a commit or a checkpoint that cannot be believed.
func (w *writer) stop(err error) error {
	w.failure = fmt.Errorf("database stopped: %w", err)
	w.failed <- w.failure
	return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
}

// refused reports whether a job said no before it changed anything.
func refused(err error) bool {
	return errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrConflict)
}

// explain puts SQLite's errors into our words.
func explain(err error) error {
	switch code(err) {
	case lib.SQLITE_FULL:
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	case lib.SQLITE_CORRUPT:
		return asCorrupt(err)
	case lib.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", dormouse.ErrTooLarge, err)
	case lib.SQLITE_CONSTRAINT:
		if strings.Contains(err.Error(), "client_ids.id") {
			return fmt.Errorf("a client has given this id before: %w: %w", dormouse.ErrConflict, err)
		}
		return fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	return err
}

// code is the primary result code of an error, or 0 if it is not SQLite's.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
