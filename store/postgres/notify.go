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
	// often is how often they are named at most.
	often = 2 * time.Millisecond
	// lonely is how long a server that was alone believes that it still is.
	lonely = time.Second
	// payload is how long a notification may be, a little below PostgreSQL's own
	// limit.
	payload = 7900
)

// notifier names sessions that have grown to the other servers: not in the
// transaction that grew them, which would make all commits wait for each other,
// and not at all while there are no other servers. What it cannot tell it drops,
// since nobody relies on being told.
type notifier struct {
	line    *line
	me      *atomic.Uint64
	closing <-chan struct{}
	wake    chan struct{}

	mu    sync.Mutex
	grown map[dormouse.SessionID]struct{} // guarded by mu; nil: nobody else is there

	looked time.Time // when others were last looked for; only run uses it
}

func newNotifier(l *line, me *atomic.Uint64, closing <-chan struct{}) *notifier {
	return &notifier{line: l, me: me, closing: closing, wake: make(chan struct{}, 1)}
}

// tell notes a session that has grown.
func (n *notifier) tell(id dormouse.SessionID) {
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

// run tells until closing is closed.
func (n *notifier) run(ctx context.Context) {
	defer n.line.hangUp()
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-n.wake:
		case <-n.closing:
			return
		}
		wait := often
		if !n.flush(ctx) {
			wait = lonely
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

	ctx, cancel := context.WithTimeout(ctx, lonely)
	defer cancel()
	others := true
	err := n.line.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if time.Since(n.looked) >= lonely {
			err := c.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation <> $1 AND `+lives+`)`,
				signed(n.me.Load())).Scan(&others)
			if err != nil || !others {
				return err
			}
			n.looked = time.Now()
		}
		_, err := c.Exec(ctx, `SELECT pg_notify('`+channel+`', named) FROM unnest($1::text[]) AS named`, join(grown))
		return err
	})
	return err == nil && others
}

// join spells sessions as few notifications.
func join(ids map[dormouse.SessionID]struct{}) (payloads []string) {
	var b strings.Builder
	for id := range ids {
		if b.Len() > 0 && b.Len()+1+len(id) > payload {
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
