package inside

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

const (
	firstRedial = time.Millisecond
	lastRedial  = 50 * time.Millisecond
	// After redialPatience without a server there is none for a while.
	redialPatience = time.Minute
	slowRedial     = time.Second
	// clockJump is how much longer than asked a pause takes only if the whole
	// machine was away.
	clockJump = time.Second
)

// redial paces the search for a server: soon again at first, and seldom when
// there was none for long. A machine that was frozen and woke is looked for at
// once, so whoever finds the clock ahead begins anew.
type redial struct {
	next    time.Duration // the pause before the next dial, zero for the first
	failing time.Duration // how long there has been no server
}

// step returns the pause before the next dial.
func (d *redial) step() time.Duration {
	pause := max(d.next, firstRedial)
	longest := lastRedial
	if d.failing >= redialPatience {
		longest = slowRedial
	}
	d.next = min(2*pause, longest)
	return pause
}

// slept takes note of a pause that was to take asked and took took.
func (d *redial) slept(asked, took time.Duration) {
	if took < 0 || took > asked+clockJump {
		*d = redial{}
		return
	}
	d.failing += took
}

// wait pauses before the next dial.
func (d *redial) wait(ctx context.Context) {
	asked, from := d.step(), time.Now()
	_ = sleep.For(ctx, asked)
	// A woken machine shows it by either clock.
	d.slept(asked, max(time.Since(from), time.Now().Round(0).Sub(from.Round(0))))
}
