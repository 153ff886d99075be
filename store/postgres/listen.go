package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// pingInterval is how long no notification may come before the connection is pinged.
const pingInterval = 10 * time.Second

// Listen calls changed with sessions that have grown, and with none whenever it
// begins to listen: what was before it has missed.
func (s *Store) Listen(ctx context.Context, changed func(ids []dormouse.SessionID)) error {
	if s.closed() {
		return wrap(dormouse.ErrClosing, "listen to", channel)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-s.closing:
			cancel(dormouse.ErrClosing)
		case <-ctx.Done():
		}
	})
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		heard, err := s.listenOnce(ctx, changed)
		if ctx.Err() != nil {
			return wrap(context.Cause(ctx), "listen to", channel)
		}
		if heard {
			wait = 10 * time.Millisecond
		}
		s.log.DebugContext(ctx, "database notifications not received", "error", err)
		_ = sleep.For(ctx, wait) // the next attempt says why it was cut short
	}
}

// listenOnce listens on one connection until that is lost, and reports whether it ever
// listened.
func (s *Store) listenOnce(ctx context.Context, changed func([]dormouse.SessionID)) (heard bool, err error) {
	c, err := pgx.ConnectConfig(ctx, s.listener)
	if err != nil {
		return false, err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = c.Close(bye)
	}()
	if _, err := c.Exec(ctx, `LISTEN `+channel); err != nil {
		return false, err
	}
	changed(nil)
	for {
		waiting, cancel := context.WithTimeout(ctx, pingInterval)
		n, err := c.WaitForNotification(waiting)
		cancel()
		if err != nil && waiting.Err() != nil && ctx.Err() == nil && !c.IsClosed() {
			asking, cancel := context.WithTimeout(ctx, pingInterval)
			err = c.Ping(asking)
			cancel()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return true, err
		}
		var ids []dormouse.SessionID
		for id := range strings.FieldsSeq(n.Payload) {
			ids = append(ids, dormouse.SessionID(id))
		}
		changed(ids)
	}
}
