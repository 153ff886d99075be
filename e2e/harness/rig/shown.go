package rig

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// Shown is what the server says of a session.
type Shown client.Session

// Settled reports whether the session is idle: the server wants nothing for it. A session
// that waits for people counts as idle.
func (s Shown) Settled() bool {
	for _, c := range s.Children {
		if c.Stage != client.ChildStarted {
			return false // it is being made, or ended
		}
	}
	if s.Workspace.Due != "" {
		return false // a snapshot is about to be taken
	}
	switch s.Phase {
	case dormouse.PhaseReady, dormouse.PhaseHibernated, dormouse.PhaseError:
		return s.Queue == 0
	case dormouse.PhaseWaiting, dormouse.PhaseInterrupted:
		return true
	case dormouse.PhaseTerminated:
		return s.Sandbox.Phase == "cold"
	case dormouse.PhaseCreating, dormouse.PhaseRunning, dormouse.PhaseHibernating, dormouse.PhaseWaking:
		return false
	}
	return false
}

// Waiting lists the tool calls that people must answer.
func (s Shown) Waiting() []dormouse.EventID {
	var ids []dormouse.EventID
	for _, t := range s.Threads {
		if t.Turn == nil {
			continue
		}
		for _, w := range t.Turn.Waiting {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// Turning reports whether a turn is active or blocked.
func (s Shown) Turning() bool {
	for _, t := range s.Threads {
		if t.Turn != nil {
			return true
		}
	}
	return false
}
