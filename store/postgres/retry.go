package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
)

// retry calls f until it succeeds, fails with an error that will not pass, or
// answerTimeout has passed. It is for what may be done twice. A closed stop ends the
// waiting; it may be nil.
func retry(ctx context.Context, stop <-chan struct{}, passes func(error) bool, f func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	var last error
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		err := f(bounded)
		switch {
		case err == nil:
			return nil
		case passes(err):
			last = err
		case bounded.Err() == nil:
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return err
		case <-bounded.Done():
			timer.Stop()
			return retryError(ctx, last)
		}
	}
}

// retryError says why nothing is tried any more: the caller left, or what should have
// passed did not.
func retryError(ctx context.Context, last error) error {
	switch left := context.Cause(ctx); {
	case last == nil && left == nil:
		return errNoAnswer
	case last == nil:
		return left
	case left == nil:
		return last
	default:
		return fmt.Errorf("%w: %w", left, explain(last))
	}
}

// withReader runs f with a connection that reads.
func (s *Store) withReader(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.withPool(ctx, s.readers, f)
}

// withControl runs f with a connection for writes that are no appends. f may be run
// twice, so it must be idempotent.
func (s *Store) withControl(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.withPool(ctx, s.control, f)
}

func (s *Store) withPool(ctx context.Context, pool *pgxpool.Pool, f func(context.Context, *pgxpool.Conn) error) error {
	if s.closed() {
		return dormouse.ErrClosing
	}
	err := retry(ctx, s.closing, transient, func(ctx context.Context) error {
		return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			err := f(ctx, c)
			if err != nil && connectionUnusable(err) {
				err = errors.Join(err, c.Conn().Close(ctx))
			}
			return err
		})
	})
	if err != nil && s.closed() {
		return fmt.Errorf("%w: %w", dormouse.ErrClosing, err)
	}
	return explain(err)
}

// dedicatedConn is a connection for one purpose. It is made when it is first needed, and
// again when it was lost.
type dedicatedConn struct {
	config *pgx.ConnConfig
	// slot holds the connection while it is not in use; nil before there is one.
	slot chan *pgx.Conn
}

func newDedicatedConn(config *pgx.ConnConfig) *dedicatedConn {
	l := &dedicatedConn{config: config, slot: make(chan *pgx.Conn, 1)}
	l.slot <- nil
	return l
}

// do runs f with the connection, and again if that was lost. So f must be idempotent.
func (l *dedicatedConn) do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return retry(ctx, nil, transient, func(ctx context.Context) error {
		var c *pgx.Conn
		select {
		case c = <-l.slot:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { l.slot <- c }()
		if c == nil || c.IsClosed() {
			var err error
			if c, err = pgx.ConnectConfig(ctx, l.config); err != nil {
				return err
			}
		}
		err := f(ctx, c)
		if err != nil && connectionUnusable(err) {
			err = errors.Join(err, c.Close(ctx))
		}
		return err
	})
}

// disconnect closes the connection. It must not be used any more.
func (l *dedicatedConn) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), grace) //nolint:forbidigo // no caller waits for the connection to close
	defer cancel()
	select {
	case c := <-l.slot:
		if c != nil {
			_ = c.Close(ctx)
		}
	case <-ctx.Done():
	}
}
