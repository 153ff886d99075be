package law

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// warm asks for a sandbox if there is none.
func (d *draft) warm() error {
	switch d.Sandbox.Phase {
	case SandboxCold:
		how := dormouse.WarmCreate
		if d.Sandbox.Generation > 0 || d.Workspace.Sealed { // a branch may begin with what ran
			how = dormouse.WarmRestore
		}
		d.record(dormouse.SandboxWarming, "", dormouse.SandboxFact{
			Generation: d.Sandbox.Generation + 1, How: how,
		})
		return nil
	case SandboxStopping:
		return fmt.Errorf("the sandbox is stopping; it can be woken when it has stopped: %w", dormouse.ErrConflict)
	case SandboxWarming, SandboxActive:
		return nil
	}
	return nil
}

func (d *draft) wake() error {
	for _, t := range d.Threads {
		d.clearAttention(t.ID)
	}
	return d.warm()
}

// hibernate stops the sandbox. A turn at work is interrupted first; one that
// waits for people can wait without a sandbox.
func (d *draft) hibernate() error {
	if d.Sandbox.Phase != SandboxActive {
		return fmt.Errorf("session is %s; only one with a sandbox can hibernate: %w", PhaseOf(d.State), dormouse.ErrConflict)
	}
	for _, t := range d.Threads {
		if t.Turn != nil && t.Turn.Blocked == "" {
			d.closeTurn(t.ID, dormouse.TurnInterrupted)
			d.recordIdle(t.ID, dormouse.StopReason{Type: dormouse.StopEndTurn})
		}
	}
	d.stopSandbox("hibernate")
	return nil
}

func (d *draft) stopSandbox(reason string) {
	d.record(dormouse.SandboxStopping, "", dormouse.SandboxFact{Generation: d.Sandbox.Generation, Reason: reason, Kept: true})
}

func (d *draft) sandboxUp(v SandboxUp) error {
	if d.Sandbox.Phase != SandboxWarming || d.Sandbox.Generation != v.Generation {
		return fmt.Errorf("sandbox %d is not being warmed: %w", v.Generation, dormouse.ErrConflict)
	}
	fact := dormouse.SandboxFact{
		Generation: v.Generation, Handle: v.Handle, Image: v.Image, IdleTimeout: v.IdleTimeout, Missing: v.Missing, Snapshots: v.Snapshots, Seals: v.Seals,
		Watched: v.Watched,
	}
	switch {
	case d.Sandbox.How != dormouse.WarmRestore: // nothing ran before
	case v.Kept:
		fact.Processes = dormouse.ProcessesKept
	default:
		fact.Processes, fact.Reason = dormouse.ProcessesLost, v.Lost
	}
	d.record(dormouse.SandboxStarted, "", fact)
	if d.Terminated != nil {
		d.stopSandbox("terminated")
	}
	return nil
}

// sandboxGone records a sandbox that died or could not be created. The outcome of its
// open ops is unknown from now on; a session without a turn to report that gets
// attention.
func (d *draft) sandboxGone(v SandboxGone) error {
	if d.Sandbox.Phase == SandboxCold || d.Sandbox.Generation != v.Generation {
		return nil
	}
	warming := d.Sandbox.Phase == SandboxWarming
	d.record(dormouse.SandboxLost, "", dormouse.SandboxFact{Generation: v.Generation, Reason: v.Reason, Since: d.IdleSince})
	d.loseGeneration(v.Generation, v.Reason)
	if warming {
		d.refuseExecs(v.Reason)
	}
	if warming && d.Terminated == nil && !d.Works() {
		d.record(dormouse.AttentionRaised, "", dormouse.Attention{Reason: v.Reason})
	}
	return nil
}

// sandboxDelayed refuses the commands that would have to wait for room on the disk. The
// sandbox is still wanted, and with it the memory image of the last one.
func (d *draft) sandboxDelayed(v SandboxDelayed) error {
	if d.Sandbox.Phase == SandboxWarming && d.Sandbox.Generation == v.Generation {
		d.refuseExecs(v.Reason)
	}
	return nil
}

// sandboxRelieved records that processes were killed. If the sandbox is gone by now, or
// stopping, that is of no interest.
func (d *draft) sandboxRelieved(v SandboxRelieved) error {
	if d.Sandbox.Phase == SandboxActive && d.Sandbox.Generation == v.Generation {
		d.record(dormouse.SandboxRelieved, "", dormouse.SandboxFact{Generation: v.Generation, Reason: v.Reason})
	}
	return nil
}

// sandboxDown records a stop. A sandbox whose files are not saved may not be
// stopped: no workspace is ever lost.
func (d *draft) sandboxDown(v SandboxDown) error {
	if d.Sandbox.Phase != SandboxStopping || d.Sandbox.Generation != v.Generation {
		return fmt.Errorf("sandbox %d is not stopping: %w", v.Generation, dormouse.ErrConflict)
	}
	if !d.Sandbox.Saved {
		return fmt.Errorf("files of sandbox %d are not saved: %w", v.Generation, dormouse.ErrConflict)
	}
	fact := dormouse.SandboxFact{Generation: v.Generation, Processes: dormouse.ProcessesLost, Reason: v.Lost}
	if v.Kept {
		fact.Processes = dormouse.ProcessesKept
	}
	d.record(dormouse.SandboxStopped, "", fact)
	d.loseGeneration(v.Generation, "its sandbox was stopped")
	return nil
}

// evict hibernates a sandbox before its idle timeout. One that is in use keeps its slot.
func (d *draft) evict() error {
	if IdleSince(d.State).IsZero() {
		return fmt.Errorf("its sandbox is in use, or is none: %w", dormouse.ErrConflict)
	}
	d.stopSandbox("room")
	return nil
}

// tick does what is due by itself: it expires questions that were not answered, and
// hibernates an idle sandbox.
func (d *draft) tick(v Tick) error {
	d.expire()
	at := sleepAt(d.State)
	switch {
	case at.IsZero() || d.c.Now.Before(at):
	case v.Busy != "" && (!v.Bounded || d.c.Now.Before(d.IdleSince.Add(d.IdleTimeout()+dormouse.MaxStirs))):
		d.record(dormouse.SandboxStirred, "", dormouse.SandboxFact{Generation: d.Sandbox.Generation, Reason: v.Busy})
	default:
		d.stopSandbox("idle")
	}
	return nil
}
