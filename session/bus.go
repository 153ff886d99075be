package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Signal says that something happened to a session which other programs may want to act
// on. It is made from what was just committed, on the server that committed it, and is
// lost with that server: a program that must not miss one reads the log.
type Signal struct {
	Type    SignalType
	Session dormouse.SessionID
	// Seq is the event it was made from.
	Seq  uint64
	Time time.Time
}

// SignalType says what happened.
type SignalType string

// The types of Signal.
const (
	SignalCreated SignalType = "session.created"
	// SignalCompleted: the agent has done what it was asked and rests.
	SignalCompleted SignalType = "session.completed"
	// SignalWaiting: people are asked for something.
	SignalWaiting SignalType = "session.waiting"
	// SignalFailed: a turn ended in an error.
	SignalFailed     SignalType = "session.failed"
	SignalTerminated SignalType = "session.terminated"
	SignalArchived   SignalType = "session.archived"
	SignalDeleted    SignalType = "session.deleted"
	// SignalMissed: the caller of Attend was too slow, and some signals before this one
	// are lost.
	SignalMissed SignalType = "missed"
)

// signalOf says which signal an event causes, if any.
func signalOf(e dormouse.Event) (SignalType, bool) {
	switch e.Type { //nolint:exhaustive // the others are of interest to followers only
	case dormouse.SessionCreated:
		return SignalCreated, true
	case dormouse.SessionStatusIdle:
		switch law.Payload[dormouse.Idle](e).StopReason.Type {
		case dormouse.StopRequiresAction:
			return SignalWaiting, true
		case dormouse.StopRetriesExhausted:
			return SignalFailed, true
		}
		return SignalCompleted, true
	case dormouse.SessionTerminated:
		return SignalTerminated, true
	case dormouse.SessionArchived:
		return SignalArchived, true
	case dormouse.SessionDeleted:
		return SignalDeleted, true
	}
	return "", false
}

// maxSignals is how many signals wait for one subscriber.
const maxSignals = 1024

// bus hands signals to subscribers, inside the process.
type bus struct {
	mu          sync.Mutex
	subscribers []*subscriber // guarded by mu; replaced, never changed
}

// subscriber is one caller of Attend.
type subscriber struct {
	types []SignalType
	more  chan struct{}

	mu      sync.Mutex
	waiting []Signal // guarded by mu
	missed  bool     // guarded by mu
}

// Attend calls f with every signal of these types from now on, or of all types, in the
// order they were committed per session, until ctx ends. It never blocks a commit: a
// caller that is too slow gets SignalMissed in place of the signals that it missed.
func (s *Sessions) Attend(ctx context.Context, f func(Signal), types ...SignalType) {
	a := &subscriber{types: types, more: make(chan struct{}, 1)}
	s.bus.mu.Lock()
	s.bus.subscribers = append(slices.Clip(s.bus.subscribers), a)
	s.bus.mu.Unlock()
	defer func() {
		s.bus.mu.Lock()
		defer s.bus.mu.Unlock()
		s.bus.subscribers = slices.DeleteFunc(slices.Clone(s.bus.subscribers), func(o *subscriber) bool { return o == a })
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.more:
		}
		for _, signal := range a.take() {
			if f(signal); ctx.Err() != nil {
				return
			}
		}
	}
}

// committed tells OnCommit and the subscribers what was just committed.
func (s *Sessions) committed(id dormouse.SessionID, events []dormouse.Event) {
	if s.config.OnCommit != nil {
		s.config.OnCommit(id, events)
	}
	s.bus.publish(id, events)
}

// publish tells the subscribers what was just committed.
func (b *bus) publish(id dormouse.SessionID, events []dormouse.Event) {
	b.mu.Lock()
	attend := b.subscribers
	b.mu.Unlock()
	if len(attend) == 0 {
		return
	}
	for _, e := range events {
		if t, ok := signalOf(e); ok {
			for _, a := range attend {
				a.add(Signal{Type: t, Session: id, Seq: e.Seq, Time: e.Time})
			}
		}
	}
}

func (a *subscriber) add(s Signal) {
	if len(a.types) > 0 && !slices.Contains(a.types, s.Type) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == maxSignals {
		a.waiting, a.missed = a.waiting[1:], true
	}
	a.waiting = append(a.waiting, s)
	select {
	case a.more <- struct{}{}:
	default:
	}
}

func (a *subscriber) take() []Signal {
	a.mu.Lock()
	defer a.mu.Unlock()
	signals := a.waiting
	if a.missed {
		signals = append([]Signal{{Type: SignalMissed}}, signals...)
	}
	a.waiting, a.missed = nil, false
	return signals
}
