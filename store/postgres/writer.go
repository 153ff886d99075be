package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/groupcommit"
	"github.com/dormouse-run/dormouse/store"
)

const (
	// maxGroup is how many writes share a commit at most.
	maxGroup = 256
	// grace is how long a caller that stops waiting is made to wait for a commit that has
	// begun: its outcome is usually a moment away.
	grace = time.Second
)

// writer is a goroutine with a connection of its own, through which all writes of
// some sessions go. What waits while a commit is on its way shares the next one.
type writer struct {
	*groupcommit.Writer[*job]
	dial    func(context.Context) (*pgx.Conn, error)
	changed func(dormouse.SessionID) // called with every session that has grown

	// Only the writer's goroutine uses these.
	conn   *pgx.Conn // nil: not connected
	layout *layout
	cache  map[dormouse.SessionID]cached
}

// job is one write, part of a transaction it shares with others.
type job struct {
	groupcommit.Request
	batch   store.Batch
	encoded encoded
	creates bool // begins a session
	queues  bool // adds a prompt

	// alone, if not nil, is done instead of writing the batch, in a transaction of its
	// own.
	alone func(context.Context, pgx.Tx) error

	key int64 // of the session, once the fence was passed
}

// under is the fence of the session that asked for the write, if there is one.
func (j *job) under() (dormouse.Fence, bool) {
	if j.batch.Under == nil {
		return dormouse.Fence{}, false
	}
	return *j.batch.Under, true
}

func newWriter(dial func(context.Context) (*pgx.Conn, error), closing <-chan struct{}, changed func(dormouse.SessionID)) *writer {
	w := &writer{dial: dial, changed: changed, layout: newLayout(), cache: make(map[dormouse.SessionID]cached)}
	w.Writer = groupcommit.New(closing, groupcommit.Options[*job]{
		Max:    maxGroup,
		Commit: w.commit,
		Judge:  judge,
		// A session is in a group once, so that a group has no order inside.
		Key:      func(j *job) string { return string(j.batch.Session) },
		Alone:    func(j *job) bool { return j.alone != nil },
		Finished: w.finished,
		Patience: answerTimeout,
		Grace:    grace,
		Closed:   dormouse.ErrClosing,
		Unknown:  dormouse.ErrUnknownOutcome,
	})
	return w
}

// run commits groups until the store is closed and nothing waits.
func (w *writer) run(ctx context.Context) {
	defer w.disconnect()
	w.Run(ctx)
}

// judge has a group retried as long as it is certain that nothing changed and the cause
// may pass, and split if the database refused it.
func judge(err error) groupcommit.Verdict {
	switch {
	case errors.Is(err, dormouse.ErrUnknownOutcome):
		return groupcommit.Fail
	case transient(err):
		return groupcommit.Retry
	case code(err) != "":
		return groupcommit.Split
	}
	return groupcommit.Fail
}

// finished caches what a job wrote and tells other servers of it.
func (w *writer) finished(j *job, err error) {
	w.updateCache(j, err)
	if err == nil && len(j.batch.Events) > 0 {
		w.changed(j.batch.Session)
	}
}

// commit writes jobs in one transaction. An error that is not
// dormouse.ErrUnknownOutcome means that nothing changed; a job that was refused
// has its own.
func (w *writer) commit(ctx context.Context, jobs []*job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	err := w.connect(ctx)
	if err == nil && jobs[0].alone != nil {
		err = w.commitAlone(ctx, jobs[0])
	} else if err == nil {
		err = w.commitGroup(ctx, jobs)
	}
	if err != nil && (connectionUnusable(err) || ctx.Err() != nil) {
		w.disconnect()
	}
	if err != nil && ctx.Err() != nil {
		err = noAnswer(ctx, err)
	}
	if errors.Is(err, dormouse.ErrUnknownOutcome) {
		return err
	}
	return explain(err)
}

// noAnswer says that the database did not answer in time. It hides the cause, because a
// caller must not take our deadline for its own.
func noAnswer(ctx context.Context, err error) error {
	if errors.Is(err, dormouse.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", dormouse.ErrUnknownOutcome, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// connect makes the connection if there is none.
func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil && w.conn.IsClosed() {
		w.disconnect()
	}
	if w.conn == nil {
		w.conn, err = w.dial(ctx)
	}
	return err
}

func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace) //nolint:forbidigo // no caller waits for the connection to close
	defer cancel()
	_ = w.conn.Close(ctx)
	w.conn = nil
}
