package store

import (
	"time"

	"github.com/dormouse-run/dormouse"
)

// Query selects sessions to list.
type Query struct {
	Tenant string
	// Owner, Parent, Phase and AgentID select when not empty, AgentVersion when
	// not 0.
	Owner        dormouse.Actor
	Parent       dormouse.SessionID
	Phase        dormouse.Phase
	AgentID      string
	AgentVersion int
	// Statuses selects sessions that have one of them, unless there is none.
	Statuses []dormouse.Status
	// Text selects sessions whose Search contains it, whatever its case; no
	// character in it is special.
	Text string
	// Tags selects sessions that have all of them, Metadata those that have every
	// one of its pairs.
	Tags     []string
	Metadata map[string]string
	// CreatedAfter and CreatedFrom select what was created later than that, or then
	// or later; CreatedBefore and CreatedUntil what was created earlier, or then or
	// earlier. The zero time selects everything.
	CreatedAfter, CreatedFrom, CreatedBefore, CreatedUntil time.Time
	// Archived also lists what was put away.
	Archived bool
	// Oldest lists the oldest first.
	Oldest bool
	// After is the last session of the page before.
	After dormouse.SessionID
	Limit int
}

// Window is the first and the last instant that the bounds on the time of creation
// leave, in whole microseconds; the zero time is no bound.
func (q Query) Window() (from, until time.Time) {
	const tick = time.Microsecond
	from, until = roundUp(q.CreatedFrom), q.CreatedUntil.Truncate(tick)
	if !q.CreatedAfter.IsZero() {
		if after := q.CreatedAfter.Truncate(tick).Add(tick); from.Before(after) {
			from = after
		}
	}
	if !q.CreatedBefore.IsZero() {
		if before := roundUp(q.CreatedBefore).Add(-tick); until.IsZero() || before.Before(until) {
			until = before
		}
	}
	return from, until
}

// roundUp is the first whole microsecond at or after t.
func roundUp(t time.Time) time.Time {
	if whole := t.Truncate(time.Microsecond); whole.Before(t) {
		return whole.Add(time.Microsecond)
	}
	return t
}
