package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// clock continues the database's time by the monotonic clock of this machine. It never
// goes back: if it turns out to be ahead it runs at half speed until it is not. If it
// stood still no alarm would ring.
type clock struct {
	mu    sync.Mutex
	base  time.Time     // guarded by mu; what the database said
	at    time.Time     // guarded by mu; when, by the clock of this machine
	ahead time.Duration // guarded by mu; of the database, at that time
}

// sync learns the time from the database.
func (c *clock) sync(ctx context.Context, conn *pgx.Conn) error {
	asked := time.Now()
	var now time.Time
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	c.adjust(now, asked, time.Now())
	return nil
}

// adjust takes the time that the database reported between asked and answered for the
// time in the middle. An answer that took so long that the clock may be right already
// changes nothing: the error may be half of the delay.
func (c *clock) adjust(said, asked, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubt := answered.Sub(asked) / 2
	middle := asked.Add(doubt)
	ahead := time.Duration(0)
	if !c.at.IsZero() {
		off := c.reading(middle).Sub(said)
		if off.Abs() <= doubt {
			return
		}
		ahead = max(0, off)
	}
	c.base, c.at, c.ahead = said.UTC(), middle, ahead
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading(time.Now()).Truncate(time.Microsecond)
}

// reading is what the clock shows at a time of this machine. The lock is held.
func (c *clock) reading(t time.Time) time.Time {
	passed := t.Sub(c.at)
	return c.base.Add(passed + max(0, c.ahead-passed/2))
}
