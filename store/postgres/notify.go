package postgres

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
)

const (
	// channel is where sessions that have grown are named.
	channel = "dormouse"
	// notifyInterval is how often they are named at most.
	notifyInterval = 2 * time.Millisecond
	// aloneInterval is how long a server that was alone believes that it still is.
	aloneInterval = time.Second
	// maxPayload is how long a notification may be, a little below PostgreSQL's own
	// limit.
	maxPayload = 7900
)

// notifier tells the other servers which sessions have grown. It does not do so in the
// transaction, where NOTIFY would serialise all commits, and not at all while there are
// no other servers. It drops what it cannot send, because no server relies on
// notifications.
type notifier struct {
	conn        *dedicatedConn
	incarnation *atomic.Uint64
	closing     <-chan struct{}
	wake        chan struct{}

	mu    sync.Mutex
	grown map[dormouse.SessionID]struct{} // guarded by mu; nil: there is no other server

	lastLook time.Time // when others were last looked for; only run uses it
}

func newNotifier(l *dedicatedConn, me *atomic.Uint64, closing <-chan struct{}) *notifier {
	return &notifier{conn: l, incarnation: me, closing: closing, wake: make(chan struct{}, 1)}
}

// notify notes a session that has grown.
func (n *notifier) notify(id dormouse.SessionID) {
	n.mu.Lock()
	if n.grown == nil {
		n.grown = make(map[dormouse.SessionID]struct{})
	}
	n.grown[id] = struct{}{}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run sends notifications until closing is closed.
func (n *notifier) run(ctx context.Context) {
	defer n.conn.disconnect()
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-n.wake:
		case <-n.closing:
			return
		}
		wait := notifyInterval
		if !n.flush(ctx) {
			wait = aloneInterval
		}
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-n.closing:
			return
		}
	}
}

// flush names what has grown since the last time, and reports whether anyone
// else is there.
func (n *notifier) flush(ctx context.Context) bool {
	n.mu.Lock()
	grown := n.grown
	n.grown = nil
	n.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, aloneInterval)
	defer cancel()
	others := true
	err := n.conn.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if time.Since(n.lastLook) >= aloneInterval {
			err := c.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation <> $1 AND `+lives+`)`,
				signed(n.incarnation.Load())).Scan(&others)
			if err != nil || !others {
				return err
			}
			n.lastLook = time.Now()
		}
		_, err := c.Exec(ctx, `SELECT pg_notify('`+channel+`', named) FROM unnest($1::text[]) AS named`, join(grown))
		return err
	})
	return err == nil && others
}

// join puts sessions into as few notifications as possible.
func join(ids map[dormouse.SessionID]struct{}) (payloads []string) {
	var b strings.Builder
	for id := range ids {
		if b.Len() > 0 && b.Len()+1+len(id) > maxPayload {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(id))
	}
	return append(payloads, b.String())
}
