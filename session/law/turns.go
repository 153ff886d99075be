package law

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// recoverAttempts deals with attempts that a lease before this one left running: they
// are lost. Their number is durable before the next one starts.
func (d *draft) recoverAttempts() error {
	rescheduled := false
	for _, t := range d.Threads {
		if t.Turn == nil || t.Turn.Epoch == 0 || t.Turn.Epoch >= d.c.Epoch {
			continue
		}
		turn := *t.Turn
		d.loseStranded(turn.ID)
		if turn.Attempt >= MaxAttempt {
			d.giveUpTurn(t.ID, "unknown_error", fmt.Sprintf(
				"the server stopped %d times during this turn; it was not tried again", turn.Attempt+1))
			continue
		}
		d.record(dormouse.AttemptEnded, t.ID, dormouse.Attempt{Turn: turn.ID, Number: turn.Attempt, Reason: dormouse.AttemptLost})
		if d.Recovery == dormouse.RecoverAsk {
			d.record(dormouse.TurnBlocked, t.ID, dormouse.Blocked{Turn: turn.ID, On: dormouse.BlockedOnRecovery})
			d.recordIdle(t.ID, dormouse.StopReason{Type: dormouse.StopEndTurn})
			continue
		}
		if !rescheduled {
			d.record(dormouse.SessionStatusRescheduled, "", struct{}{})
			rescheduled = true
		}
		d.record(dormouse.SessionThreadStatusRescheduled, t.ID, d.threadStatus(t.ID, nil))
		d.record(dormouse.AttemptStarted, t.ID, dormouse.Attempt{Turn: turn.ID, Number: turn.Attempt + 1, Epoch: d.c.Epoch})
	}
	return nil
}

func (d *draft) startAttempt(v StartAttempt) error {
	t := d.TurnOf(v.Turn)
	switch {
	case t == nil:
		return fmt.Errorf("turn %s is over: %w", v.Turn, dormouse.ErrConflict)
	case t.Turn.Epoch != 0 || t.Turn.Blocked != "":
		return fmt.Errorf("turn %s is not between attempts: %w", v.Turn, dormouse.ErrConflict)
	case !(WantedStart{Since: t.Turn.Since, Until: t.Turn.Until}).Due(d.c.Now):
		return fmt.Errorf("turn %s waits until %s: %w", v.Turn, t.Turn.Until, dormouse.ErrConflict)
	}
	d.record(dormouse.AttemptStarted, t.ID, dormouse.Attempt{Turn: v.Turn, Number: t.Turn.Attempt, Epoch: d.c.Epoch})
	return nil
}

func (d *draft) returnAttempt(v ReturnAttempt) error {
	t := d.TurnOf(v.Turn)
	if t == nil || t.Turn.Epoch != d.c.Epoch || t.Turn.Epoch == 0 {
		return fmt.Errorf("turn %s has no attempt of this lease: %w", v.Turn, dormouse.ErrConflict)
	}
	d.record(dormouse.AttemptEnded, t.ID, dormouse.Attempt{Turn: v.Turn, Number: t.Turn.Attempt, Reason: dormouse.AttemptReturned})
	return nil
}

// current returns the thread whose attempt w is, and refuses any other.
func (d *draft) current(w Work) (*Thread, error) {
	t := d.TurnOf(w.Turn)
	if t == nil || t.Turn.Epoch == 0 || t.Turn.Epoch != d.c.Epoch || t.Turn.Attempt != w.Attempt {
		return nil, fmt.Errorf("attempt %d of turn %s is over: %w", w.Attempt, w.Turn, dormouse.ErrConflict)
	}
	return t, nil
}

func (d *draft) failAttempt(v FailAttempt) error {
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	thread, turn := t.ID, *t.Turn
	if !v.Retry || turn.Attempt >= MaxAttempt {
		d.giveUpTurn(thread, v.Error, v.Message)
		return nil
	}
	d.record(dormouse.SessionError, thread, failure(v.Error, v.Message, "retrying"))
	d.record(dormouse.AttemptEnded, thread, dormouse.Attempt{
		Turn: turn.ID, Number: turn.Attempt, Reason: dormouse.AttemptFailed, Until: v.Until,
	})
	if StatusOf(d.State) == dormouse.StatusRescheduling { // else another thread still runs
		d.record(dormouse.SessionStatusRescheduled, "", struct{}{})
	}
	d.record(dormouse.SessionThreadStatusRescheduled, thread, d.threadStatus(thread, nil))
	return nil
}

func failure(kind, message, retry string) dormouse.Failure {
	return dormouse.Failure{Error: dormouse.FailureDetail{
		Type: kind, Message: message, RetryStatus: dormouse.RetryStatus{Type: retry},
	}}
}

// giveUpTurn ends a turn that is not tried again and asks for attention. What is
// queued runs next, unless the session was made to cancel it.
func (d *draft) giveUpTurn(thread dormouse.ThreadID, kind, message string) {
	t := d.Thread(thread)
	turn := *t.Turn
	d.record(dormouse.SessionError, thread, failure(kind, message, "exhausted"))
	d.record(dormouse.AttentionRaised, thread, dormouse.Attention{
		Reason: message, Thread: thread, Turn: turn.ID, Prompts: ids(turn.Prompts),
	})
	if d.FlushOnError {
		d.flush(thread, "retries_exhausted")
	}
	d.closeTurn(thread, dormouse.TurnFailed)
	d.recordIdle(thread, dormouse.StopReason{Type: dormouse.StopRetriesExhausted})
}

// interrupt ends the active turn for a person. If there is none, it does nothing.
func (d *draft) interrupt(v Interrupt) error {
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	thread, active := t.ID, t.Turn != nil
	alreadyIdle := active && t.Turn.Blocked == dormouse.BlockedOnRecovery // already idle, nothing required of anyone
	if active || v.Always {
		d.addNamed(v.ID, dormouse.UserInterrupt, thread, d.c.By, struct{}{})
	}
	if active {
		d.closeTurn(thread, dormouse.TurnInterrupted)
	}
	if v.Flush {
		d.flush(thread, "interrupted")
	}
	if active && !alreadyIdle {
		d.recordIdle(thread, dormouse.StopReason{Type: dormouse.StopEndTurn})
	}
	return nil
}

// closeTurn ends a turn whatever it was doing: what was seen of a reply stands, open
// tool calls get a result that says so, and prompt and turn are done in one.
func (d *draft) closeTurn(thread dormouse.ThreadID, outcome string) {
	turn := *d.Thread(thread).Turn
	d.closeOps(thread, turn)
	d.finishTurn(thread, turn, outcome)
}

func (d *draft) finishTurn(thread dormouse.ThreadID, turn Turn, outcome string) {
	d.record(dormouse.PromptCompleted, thread, dormouse.Prompts{Prompts: ids(turn.Prompts)})
	end := dormouse.TurnFact{Turn: turn.ID, Outcome: outcome}
	if d.TurnNeedsSnapshot() && d.Terminated == nil {
		end.Snapshot = DeriveSnapshotID(d.Session, dormouse.SnapshotOfTurn, d.Seq+1)
	}
	d.record(dormouse.TurnEnded, thread, end)
}

func (d *draft) endTurn(v EndTurn) error {
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	if t.Turn.Stop == "" || len(t.Turn.Uses) > 0 || d.hasOpenOp(v.Turn) {
		return fmt.Errorf("turn %s still has open work: %w", v.Turn, dormouse.ErrConflict)
	}
	thread, stop := t.ID, dormouse.StopEndTurn
	if t.Turn.Stop == dormouse.StopRefusal {
		stop = dormouse.StopRefusal
	}
	d.finishTurn(thread, *t.Turn, dormouse.TurnCompleted)
	d.recordIdle(thread, dormouse.StopReason{Type: stop})
	return nil
}

// block parks a turn in which only people can do something. If they just did,
// there is nothing to block.
func (d *draft) block(v Block) error {
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	waiting := t.Turn.gated()
	if len(waiting) < len(t.Turn.Uses) {
		if len(waiting) == 0 {
			return nil
		}
		return fmt.Errorf("turn %s has tool calls that can run: %w", v.Turn, dormouse.ErrConflict)
	}
	if len(waiting) == 0 {
		return nil
	}
	thread := t.ID
	d.record(dormouse.TurnBlocked, thread, dormouse.Blocked{Turn: v.Turn, On: dormouse.BlockedOnPeople})
	d.recordIdle(thread, dormouse.StopReason{Type: dormouse.StopRequiresAction, EventIDs: waiting})
	return nil
}

// resume takes a turn that is no longer blocked up again.
func (d *draft) resume(thread dormouse.ThreadID, turn dormouse.TurnID) {
	was := d.Works()
	d.add(dormouse.TurnResumed, thread, dormouse.TurnFact{Turn: turn})
	d.recordRunning(thread, was)
}

// retry tries again: the turn that a crash left waiting for a person, or the
// prompts of the turn that failed.
func (d *draft) retry(v Retry) error {
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	switch {
	case t.Turn != nil && t.Turn.Blocked == dormouse.BlockedOnRecovery:
		d.resume(t.ID, t.Turn.ID)
		return nil
	case t.Turn == nil && t.Attention != nil && len(t.Attention.Prompts) > 0:
		id, a := t.ID, *t.Attention
		d.startTurn(id, ids(a.Prompts), a.Turn, func() { d.clearAttention(id) })
		return nil
	case t.Turn == nil && t.Attention != nil:
		d.clearAttention(t.ID)
		return d.warm()
	}
	return fmt.Errorf("there is nothing to retry: %w", dormouse.ErrConflict)
}

// continueTurn leaves a turn that a crash stopped as it is.
func (d *draft) continueTurn(v Continue) error {
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	if t.Turn == nil || t.Turn.Blocked != dormouse.BlockedOnRecovery {
		return fmt.Errorf("no turn waits for a decision: %w", dormouse.ErrConflict)
	}
	d.closeTurn(t.ID, dormouse.TurnInterrupted)
	return nil
}

// terminate ends the session for good. Twice is once.
func (d *draft) terminate(v Terminate) error {
	if d.Terminated != nil {
		return nil
	}
	for _, t := range d.Threads {
		if !t.Archived.IsZero() {
			continue
		}
		worked := t.Turn != nil && t.Turn.Blocked == ""
		if t.Turn != nil {
			d.closeTurn(t.ID, dormouse.TurnAbandoned)
		}
		d.flush(t.ID, "terminated")
		if worked {
			d.recordIdle(t.ID, dormouse.StopReason{Type: dormouse.StopEndTurn})
		}
		d.record(dormouse.SessionThreadStatusTerminated, t.ID, d.threadStatus(t.ID, nil))
	}
	d.refuseExecs("the session was terminated")
	end := dormouse.Termination{Reason: v.Reason}
	if d.c.By != dormouse.FromSession(d.Parent) { // else it waits for this
		end.Parent = d.Parent
	}
	d.add(dormouse.SessionTerminated, "", end)
	d.record(dormouse.SessionStatusTerminated, "", struct{}{})
	if d.Sandbox.Phase == SandboxActive {
		d.stopSandbox("terminated")
	}
	return nil
}
