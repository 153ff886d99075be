package inside

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

const (
	firstRedial = time.Millisecond
	lastRedial  = 50 * time.Millisecond
	// After redialTimeout without a server the interval rises to slowRedial.
	redialTimeout = time.Minute
	slowRedial    = time.Second
	// clockJump is how much longer than asked a pause takes only if the machine was
	// suspended.
	clockJump = time.Second
)

// backoff is the exponential backoff between dials. It starts over when the clock shows
// that the machine was hibernated and woke, because a server looks for it then.
type backoff struct {
	next    time.Duration // the pause before the next dial, zero for the first
	failing time.Duration // how long dials have failed
}

// step returns the pause before the next dial.
func (d *backoff) step() time.Duration {
	pause := max(d.next, firstRedial)
	longest := lastRedial
	if d.failing >= redialTimeout {
		longest = slowRedial
	}
	d.next = min(2*pause, longest)
	return pause
}

// observe records a pause of asked that took took.
func (d *backoff) observe(asked, took time.Duration) {
	if took < 0 || took > asked+clockJump {
		*d = backoff{}
		return
	}
	d.failing += took
}

// wait pauses before the next dial.
func (d *backoff) wait(ctx context.Context) {
	asked, from := d.step(), time.Now()
	_ = sleep.For(ctx, asked)
	// Either clock may show that the machine was suspended.
	d.observe(asked, max(time.Since(from), time.Now().Round(0).Sub(from.Round(0))))
}
