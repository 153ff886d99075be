package proctree

import (
	"os"
	"sync"
)

// maxLooks is how often processes are looked at until no look has missed any.
const maxLooks = 8

// Descendants finds, over and over, what this process started. macOS has no subreapers:
// a process whose parent has ended becomes a child of launchd. So a process that was
// found once stays found, with all it starts and all of its session. An orphan in a
// session of its own whose parent was never seen is missed.
type Descendants struct {
	mu    sync.Mutex
	known map[int]Process // guarded by mu; those of the last look
}

// Find returns those that live. It reports false where processes came and went so fast
// that one may have been missed.
func (d *Descendants) Find() (living []Process, whole bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range maxLooks {
		all, err := List()
		if err != nil {
			return nil, false, err
		}
		found := descendants(os.Getpid(), d.known, all)
		whole = true
		for pid, p := range d.known {
			whole = whole && found[pid].start == p.start
		}
		d.known = found
		if whole {
			break
		}
	}
	for _, p := range d.known {
		living = append(living, p)
	}
	return living, whole, nil
}

// descendants returns those of all that self started, that were known before, or that
// have one of these as their parent or as the leader of their session.
func descendants(self int, known map[int]Process, all []Process) map[int]Process {
	found := make(map[int]Process)
	for more := true; more; {
		more = false
		for _, p := range all {
			if _, ok := found[p.PID]; ok || p.PID == self || p.Zombie {
				continue
			}
			before, was := known[p.PID]
			_, parent := found[p.Parent]
			leader, led := known[p.Session]
			if was && before.start == p.start || p.Parent == self || parent || led && leader.start <= p.start {
				found[p.PID], more = p, true
			}
		}
	}
	return found
}
