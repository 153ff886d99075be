package law

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dormouse-run/dormouse"
)

// schedule records a wake-up. The same id twice is one wake-up, though it has fired
// or was cancelled since; another wake-up under the same id is refused.
func (d *draft) schedule(v Schedule) error {
	if err := v.ID.Validate(); err != nil {
		return err
	}
	if again, err := d.again(string(v.ID), d.sameWakeup(v)); again || d.wakeup(v.ID) >= 0 {
		if err != nil {
			err = fmt.Errorf("wake-up %s was scheduled otherwise: %w", v.ID, dormouse.ErrConflict)
		}
		return err
	}
	if err := dormouse.ValidateContent(v.Content); err != nil {
		return err
	}
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	if v.In > 0 && v.At.IsZero() {
		v.At = d.c.Now.Add(v.In)
	}
	at, err := firstAt(v, d.c.Now)
	if err != nil {
		return err
	}
	if len(d.Wakeups) >= dormouse.MaxWakeups {
		return fmt.Errorf("%d wake-ups are scheduled already; cancel one first: %w", len(d.Wakeups), dormouse.ErrConflict)
	}
	d.add(dormouse.WakeupScheduled, t.ID, dormouse.Wakeup{ID: v.ID, Cron: v.Cron, At: at, In: v.In, Content: v.Content})
	return nil
}

// sameWakeup tells a wake-up that was scheduled as v asks for from others.
func (d *draft) sameWakeup(v Schedule) func(dormouse.Event) bool {
	return func(e dormouse.Event) bool {
		p := Payload[dormouse.Wakeup](e)
		return e.Type == dormouse.WakeupScheduled && e.Thread == cmp.Or(v.Thread, dormouse.PrimaryThread(d.Session)) &&
			p.Cron == v.Cron && p.In == v.In && (v.At.IsZero() || p.At.Equal(Stamp(v.At))) &&
			bytes.Equal(dormouse.Encode(p.Content), dormouse.Encode(v.Content))
	}
}

// firstAt is when a wake-up fires first.
func firstAt(v Schedule, now time.Time) (time.Time, error) {
	switch {
	case (v.Cron == "") == v.At.IsZero():
		return time.Time{}, fmt.Errorf("a wake-up has either a time or a cron line: %w", dormouse.ErrInvalid)
	case v.Cron == "" && v.At.Before(now):
		return time.Time{}, fmt.Errorf("%s has passed already: %w", v.At.Format(time.RFC3339), dormouse.ErrInvalid)
	case v.Cron == "":
		return Stamp(v.At), nil
	}
	return nextCron(v.Cron, now)
}

// nextCron is the first time after now that a cron expression matches. Expressions are
// read in UTC, since the law may not ask for the machine's zone.
func nextCron(line string, now time.Time) (time.Time, error) {
	const most = 100
	if len(line) > most || strings.ContainsAny(line, "@=") {
		return time.Time{}, fmt.Errorf("a cron line has five fields, in UTC: %w", dormouse.ErrInvalid)
	}
	s, err := cron.ParseStandard(line)
	if err != nil {
		return time.Time{}, fmt.Errorf("cron line %q: %w: %w", line, err, dormouse.ErrInvalid)
	}
	at := s.Next(now.UTC())
	if at.IsZero() {
		return at, fmt.Errorf("cron line %q names no time: %w", line, dormouse.ErrInvalid)
	}
	return at, nil
}

func (d *draft) unschedule(v Unschedule) error {
	i := d.wakeup(v.ID)
	if i < 0 {
		return fmt.Errorf("no wake-up %s is scheduled: %w", v.ID, dormouse.ErrNotFound)
	}
	d.add(dormouse.WakeupCancelled, d.Wakeups[i].Thread, dormouse.WakeupFact{ID: v.ID, Reason: v.Reason})
	return nil
}

// fire queues the prompt of a wake-up that is due, and says when the next one
// is. However many times were missed, it fires once.
func (d *draft) fire(v Fire) error {
	i := d.wakeup(v.ID)
	if i < 0 || d.c.Now.Before(d.Wakeups[i].At) {
		return fmt.Errorf("wake-up %s is not due: %w", v.ID, dormouse.ErrConflict)
	}
	w := d.Wakeups[i]
	fact := dormouse.WakeupFact{
		ID: w.ID, Due: w.At,
		// No client can give this id, so that none keeps it from firing.
		Prompt: dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(d.Session), "wakeup", string(w.ID), w.At.UTC().Format(time.RFC3339Nano))),
	}
	if w.Cron != "" {
		next, err := nextCron(w.Cron, d.c.Now)
		if err != nil {
			fact.Reason = "its schedule can no longer be read"
		}
		fact.Next = next
	}
	t, err := d.thread(w.Thread)
	switch {
	case err != nil || dormouse.ValidateContent(v.Content) != nil:
		fact.Prompt, fact.Reason = "", "its prompt can no longer be read"
	case len(t.Queue) >= MaxQueue:
		fact.Prompt, fact.Reason = "", "the queue is full"
	}
	d.add(dormouse.WakeupFired, w.Thread, fact)
	if fact.Prompt == "" {
		return nil
	}
	return d.prompt(Prompt{
		Thread: w.Thread, ID: fact.Prompt, Body: dormouse.DigestOf(dormouse.Encode(v.Content)), Content: v.Content,
	})
}
