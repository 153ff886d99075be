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

// again calls f until it succeeds, fails with an error that will not pass, or
// answerTimeout has passed. It is for what may be done twice. A closed stop ends the
// waiting; it may be nil.
func again(ctx context.Context, stop <-chan struct{}, passes func(error) bool, f func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, answerTimeout, errSilent)
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
			return tired(ctx, last)
		}
	}
}

// tired says why nothing is tried any more: the caller left, or what should have
// passed did not.
func tired(ctx context.Context, last error) error {
	switch left := context.Cause(ctx); {
	case last == nil && left == nil:
		return errSilent
	case last == nil:
		return left
	case left == nil:
		return last
	default:
		return fmt.Errorf("%w: %w", left, explain(last))
	}
}

// asked runs f with a connection that reads.
func (s *Store) asked(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.with(ctx, s.readers, f)
}

// controlled runs f with a connection that changes what is not appended. Like
// all that is tried again, f must not mind being done twice.
func (s *Store) controlled(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.with(ctx, s.control, f)
}

func (s *Store) with(ctx context.Context, pool *pgxpool.Pool, f func(context.Context, *pgxpool.Conn) error) error {
	if s.closed() {
		return dormouse.ErrClosing
	}
	err := again(ctx, s.closing, passing, func(ctx context.Context) error {
		return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			err := f(ctx, c)
			if err != nil && broken(err) {
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

// line is a connection for one purpose. It is made when it is first needed, and
// again when it was lost.
type line struct {
	config *pgx.ConnConfig
	// slot holds the connection while nobody uses it; nil before there is one.
	slot chan *pgx.Conn
}

func newLine(config *pgx.ConnConfig) *line {
	l := &line{config: config, slot: make(chan *pgx.Conn, 1)}
	l.slot <- nil
	return l
}

// do runs f with the connection, and again if that was lost. So f must not mind
// being done twice.
func (l *line) do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return again(ctx, nil, passing, func(ctx context.Context) error {
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
		if err != nil && broken(err) {
			err = errors.Join(err, c.Close(ctx))
		}
		return err
	})
}

// hangUp closes the connection. Nobody may use the line any more.
func (l *line) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), grace) //nolint:forbidigo // a farewell that nobody waits for
	defer cancel()
	select {
	case c := <-l.slot:
		if c != nil {
			_ = c.Close(ctx)
		}
	case <-ctx.Done():
	}
}
