package order

import (
	"slices"
	"strings"
)

// life is where a session or a thread is.
type life struct {
	status string // "" if nothing is known
	stop   stop   // of the latest idle
}

// A session begins idle, which no event says.
func newLife(partial bool) *life {
	if partial {
		return &life{}
	}
	return &life{status: idle}
}

const (
	running     = "running"
	idle        = "idle"
	rescheduled = "rescheduled"
	terminated  = "terminated"
)

// actionStop is the stop reason of a turn that waits for people.
const actionStop = "requires_action"

// may reports whether a life may go to a status.
func (l *life) may(to string, stop stop, interrupted bool) bool {
	switch {
	case l.status == "":
		return true
	case l.status == terminated:
		return false
	case to == running: // once per turn: that it is tried again is told by rescheduled alone
		return l.status == idle
	case to == rescheduled:
		return l.status == running || l.status == rescheduled
	case to == idle && l.status == idle:
		return l.stop.Type == actionStop && (interrupted || fewer(stop, l.stop))
	}
	return true
}

// fewer reports whether a turn waits for less than before.
func fewer(now, before stop) bool {
	if now.Type != actionStop || len(now.EventIDs) >= len(before.EventIDs) {
		return false
	}
	for _, id := range now.EventIDs {
		if !slices.Contains(before.EventIDs, id) {
			return false
		}
	}
	return true
}

// status takes the session and its threads where an event says.
func (c *checker) status(e *event) {
	if e.Type == "session.thread_created" {
		c.created[e.Thread] = true
		return
	}
	if to, ok := strings.CutPrefix(e.Type, "session.thread_status_"); ok {
		c.threadStatus(e, to)
	} else if to, ok := strings.CutPrefix(e.Type, "session.status_"); ok {
		c.sessionStatus(e, to)
	}
}

func (e *event) stop() stop {
	if e.StopReason == nil {
		return stop{}
	}
	return *e.StopReason
}

func (c *checker) threadStatus(e *event, to string) {
	if c.primary == "" {
		c.primary = e.Thread
		if c.created[e.Thread] {
			c.wrong(Primary, "the first thread status is that of %s, which another made", e.Thread)
		}
	}
	l := c.threads[e.Thread]
	if l == nil {
		l = newLife(c.partial && !c.created[e.Thread])
		c.threads[e.Thread] = l
	}
	if !l.may(to, e.stop(), c.interrupted) {
		c.wrong(Status, "thread %s goes from %s to %s", e.Thread, l.status, to)
	}
	switch now := c.session.status; {
	case to == running && now != running && now != rescheduled && now != "":
		c.wrong(Pairing, "thread %s runs in a session that is %s", e.Thread, now)
	case to == rescheduled && now == running && !c.another(e.Thread):
		c.wrong(Pairing, "thread %s is tried again in a session that runs without it", e.Thread)
	}
	l.status, l.stop = to, e.stop()
}

// another reports whether a thread other than this one runs, as far as is known.
func (c *checker) another(thread string) bool {
	for id, l := range c.threads {
		if id != thread && l.status != idle && l.status != terminated {
			return true
		}
	}
	return false
}

func (c *checker) sessionStatus(e *event, to string) {
	s := c.session
	if !s.may(to, e.stop(), c.interrupted) {
		c.wrong(Status, "the session goes from %s to %s", s.status, to)
	}
	switch to {
	case running:
		if s.status == idle && !c.caused {
			c.wrong(Cause, "the session runs, and nobody sent anything")
		}
		c.pending = "session.thread_status_running"
	case rescheduled:
		c.pending = "session.thread_status_rescheduled"
	case idle:
		c.sessionIdle(e)
		c.caused = false
	case terminated:
		for id, l := range c.threads {
			if l.status != terminated {
				c.wrong(Pairing, "the session is terminated, its thread %s is %s", id, l.status)
			}
		}
	}
	s.status, s.stop = to, e.stop()
}

// sessionIdle compares a session that stops with its threads.
func (c *checker) sessionIdle(e *event) {
	for id, l := range c.threads {
		if l.status == running || l.status == rescheduled {
			c.wrong(Pairing, "the session is idle, its thread %s is %s", id, l.status)
		}
	}
	if len(c.threads) != 1 {
		return
	}
	l := c.threads[c.primary]
	if l.status == idle && (l.stop.Type != e.stop().Type || !same(l.stop.EventIDs, e.stop().EventIDs)) {
		c.wrong(Pairing, "the session stops with %v, its only thread with %v", e.stop(), l.stop)
	}
}
