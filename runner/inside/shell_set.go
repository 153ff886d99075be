package inside

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// maxShells bounds the idle shells. There are more only while they run commands.
const maxShells = 64

// shellSet is the shells of a runner by name.
type shellSet struct {
	mu    sync.Mutex
	slots map[string]*shellSlot // guarded by mu; those in use and those with a shell
	uses  uint64                // guarded by mu; counts what was run

	prestarted atomic.Pointer[shell] // has no name yet; nil if there is none
}

// shellSlot is one name. All of it is guarded by the set's mu.
type shellSlot struct {
	name  string
	last  chan struct{} // closed once the last waiting op has ended; nil before the first
	ops   int           // that run or wait
	shell *shell        // nil if there is none
	had   bool          // there was one before
	used  uint64        // when it was last used, in uses
}

// shellTurn is an op's turn on a shell. Ops take turns in the order they were sent.
type shellTurn struct {
	slot   *shellSlot
	before chan struct{} // closed once the op before has ended; nil if there is none
	over   chan struct{} // closed once this op has ended
}

// reserveShell gives an op that needs a shell its turn. It must be called in the order
// in which ops were sent.
func (r *Runner) reserveShell(c runner.Call) *shellTurn {
	if c.Kind != dormouse.OpExec || c.Exec.Shell == "" || r.shell != bashPath {
		return nil
	}
	s := &r.shells
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[c.Exec.Shell]
	if slot == nil {
		slot = &shellSlot{name: c.Exec.Shell}
		s.slots[slot.name] = slot
	}
	t := &shellTurn{slot: slot, before: slot.last, over: make(chan struct{})}
	slot.last = t.over
	slot.ops++
	return t
}

// wait waits for the turn of o, and returns false if o was killed first.
func (t *shellTurn) wait(ctx context.Context, o *op) bool {
	if t.before == nil {
		return true
	}
	select {
	case <-t.before:
		return true
	case <-o.end:
	case <-ctx.Done():
	}
	return false
}

// leave ends a turn, once it has come. It evicts the longest idle shell if there are too
// many.
func (s *shellSet) leave(t *shellTurn) {
	if t.before != nil {
		<-t.before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses++
	t.slot.used = s.uses
	t.slot.ops--
	close(t.over)
	s.trim()
}

// trim evicts the longest idle shell if there are too many, and drops unused slots. It
// must be called with mu held.
func (s *shellSet) trim() {
	living := 0
	var idle *shellSlot
	for name, slot := range s.slots {
		if slot.shell != nil && slot.shell.gone() {
			slot.shell = nil
		}
		switch {
		case slot.shell != nil:
			living++
			if slot.ops == 0 && (idle == nil || slot.used < idle.used) {
				idle = slot
			}
		case slot.ops == 0:
			delete(s.slots, name)
		}
	}
	if living > maxShells && idle != nil {
		idle.shell.end()
		delete(s.slots, idle.name)
	}
}

// idle returns the PIDs of idle shells.
func (s *shellSet) idle() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := make(map[int]bool)
	for _, slot := range s.slots {
		if slot.shell != nil && slot.ops == 0 && !slot.shell.gone() {
			pids[slot.shell.cmd.Process.Pid] = true
		}
	}
	if sh := s.prestarted.Load(); sh != nil && !sh.gone() {
		pids[sh.cmd.Process.Pid] = true
	}
	return pids
}

// shell returns the shell of a slot, nil if none is running, and whether there was one
// before.
func (s *shellSet) shell(slot *shellSlot) (sh *shell, had bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot.shell != nil && slot.shell.gone() {
		slot.shell = nil
	}
	return slot.shell, slot.had
}

func (s *shellSet) put(slot *shellSlot, sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.shell, slot.had = sh, true
}

// drop makes a slot forget its shell.
func (s *shellSet) drop(slot *shellSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.shell, slot.had = nil, false
}
