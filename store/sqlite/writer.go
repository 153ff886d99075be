package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/groupcommit"
	"github.com/dormouse-run/dormouse/store"
)

// maxGroup is how many writes share a commit at most.
const maxGroup = 256

// writer is the only goroutine that changes the database. What waits while a
// commit is on its way to the disk shares the next one.
type writer struct {
	*groupcommit.Writer[*job]
	conn    *conn
	closing chan struct{} // closed: commit what waits, then stop
	failed  chan error

	failure error // only the writer's goroutine uses it
	pages   int   // written since the last checkpoint; only the writer's goroutine uses it
}

// job is one write, run inside a transaction it shares with others.
type job struct {
	groupcommit.Request
	// do returns an error that store.Refused knows before it changes anything. Any other
	// error fails the transaction, and the job is run again in a transaction of its own.
	do     func(context.Context, *conn) error
	logs   bool // adds events
	queues bool // adds a prompt
}

func newWriter(c *conn) *writer {
	w := &writer{conn: c, closing: make(chan struct{}), failed: make(chan error, 1)}
	w.Writer = groupcommit.New(w.closing, groupcommit.Options[*job]{
		Max:        maxGroup,
		Commit:     w.commit,
		Judge:      judge,
		AfterGroup: w.checkpointLongLog,
		Closed:     dormouse.ErrClosing,
		Unknown:    dormouse.ErrUnknownOutcome,
	})
	return w
}

// The log is checkpointed when it has so many pages, and if that was not possible again
// after some more. A longer log costs a longer pause; with a shorter one the same pages
// are written again and again.
const (
	checkpointPages      = 4000
	checkpointRetryPages = 500
)

// checkpointLongLog moves the log into the database when it is long. A failed sync of the
// database cannot be tried again: what earlier checkpoints gave it, and no sync has
// reached yet, would be taken for written, and the log begun anew over it.
func (w *writer) checkpointLongLog(ctx context.Context) {
	if w.failure != nil {
		return
	}
	n, err := w.conn.pagesWritten()
	if w.pages += n; w.pages < checkpointPages && err == nil {
		return
	}
	var left int64
	if err == nil {
		left, err = w.conn.checkpoint(ctx, "PASSIVE")
	}
	if w.pages = 0; left > 0 || err != nil {
		w.pages = checkpointPages - checkpointRetryPages
	}
	if failedDisk(err) {
		_ = w.stop(err) // no caller waits for it
	}
}

// failedSync reports whether a sync failed, which a long transaction may need before
// its end.
func failedSync(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code() == lib.SQLITE_IOERR_FSYNC || e.Code() == lib.SQLITE_IOERR_DIR_FSYNC)
}

// failedDisk reports whether the disk did not take what it was given. After what it
// could not read, or had no space for, nothing has changed.
func failedDisk(err error) bool {
	if code(err) != lib.SQLITE_IOERR {
		return false
	}
	e, _ := errors.AsType[*sqlite.Error](err)
	return e.Code() != lib.SQLITE_IOERR_READ && e.Code() != lib.SQLITE_IOERR_SHORT_READ
}

// errRolledBack marks a transaction of which nothing was written.
var errRolledBack = errors.New("nothing was written")

// judge has a group split whose transaction was rolled back. Nothing is retried: what the
// disk has refused once it refuses again.
func judge(err error) groupcommit.Verdict {
	if errors.Is(err, errRolledBack) {
		return groupcommit.Split
	}
	return groupcommit.Fail
}

// commit runs jobs in one transaction.
func (w *writer) commit(ctx context.Context, jobs []*job) error {
	if w.failure != nil {
		return w.failure
	}
	if _, err := w.conn.exec(ctx, begin); err != nil {
		return fmt.Errorf("begin: %w", explain(err))
	}
	logs := false
	for _, j := range jobs {
		logs = logs || j.logs
		err := j.do(ctx, w.conn)
		if err != nil && !store.Refused(err) {
			w.rollback(ctx)
			if failedSync(err) {
				return w.stop(err)
			}
			return fmt.Errorf("%w: %w", errRolledBack, explain(err))
		}
		j.Refuse(err)
		if j.queues && err == nil {
			crash.At(crash.PromptWriting)
		}
	}
	if logs {
		crash.At(crash.StoreFlushing)
	}
	if _, err := w.conn.exec(ctx, commit); err != nil {
		w.rollback(ctx)
		return w.failedCommit(err)
	}
	if err := w.conn.files.check(); err != nil {
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

// failedCommit says what a failed commit means. A full disk refuses the commit record
// itself. After any other failure the record may be on the disk, and after one
// of the disk's own nothing it answers later can be trusted.
func (w *writer) failedCommit(err error) error {
	switch code(err) {
	case lib.SQLITE_FULL, lib.SQLITE_BUSY:
		return fmt.Errorf("%w: commit: %w", errRolledBack, explain(err))
	case lib.SQLITE_IOERR:
		return w.stop(err)
	}
	return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
}

// stop ends writing for good after a commit or a checkpoint that cannot be trusted.
func (w *writer) stop(err error) error {
	w.failure = fmt.Errorf("database stopped: %w", err)
	w.failed <- w.failure
	return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
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
