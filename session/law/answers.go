package law

import (
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// answer gives a tool call that waits for people what they said, and goes on. The
// same answer under the same id twice is one.
func (d *draft) answer(v Answer) error {
	if again, err := d.again(string(v.ID), v.sameAnswer); again {
		return err
	}
	t, use, err := d.waiting(v.Use)
	if err != nil {
		return err
	}
	thread := t.ID
	if err := d.recordAnswer(v, thread, use); err != nil {
		return err
	}
	d.unblock(thread)
	return nil
}

// recordAnswer notes an answer. The first one wins.
func (d *draft) recordAnswer(v Answer, thread dormouse.ThreadID, use dormouse.Use) error {
	op, open := d.OpFor(v.Use)
	if !open {
		return fmt.Errorf("tool call %s is not waiting: %w", v.Use, dormouse.ErrConflict)
	}
	switch {
	case use.Gate == dormouse.GateQuestion:
		if v.Allow || v.Deny || v.IsError {
			return fmt.Errorf("question %s waits for words, not for a permission: %w", v.Use, dormouse.ErrInvalid)
		}
		if !d.c.Now.Before(op.Expires) {
			return fmt.Errorf("question %s expired at %s: %w", v.Use, op.Expires.Format(time.RFC3339), dormouse.ErrConflict)
		}
		if err := dormouse.ValidateContent(v.Content); err != nil {
			return err
		}
		d.addNamed(v.ID, dormouse.QuestionAnswered, thread, d.c.By, dormouse.Question{Use: v.Use, Content: v.Content})
		d.record(dormouse.AgentToolResult, thread, dormouse.ToolResult{Use: v.Use, Content: v.Content})
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeOK, Result: v.ID})
	case use.Gate == dormouse.GateCustom:
		if v.Allow || v.Deny {
			return fmt.Errorf("tool call %s waits for a result, not for a permission: %w", v.Use, dormouse.ErrInvalid)
		}
		if len(v.Content) > 0 { // else it did something and has nothing to say
			if err := dormouse.ValidateResult(v.Content); err != nil {
				return err
			}
		}
		d.addNamed(v.ID, dormouse.UserCustomToolResult, thread, d.c.By,
			dormouse.CustomToolResult{Use: v.Use, Content: v.Content, IsError: v.IsError})
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeOK, Result: v.ID})
	case v.Allow == v.Deny || len(v.Content) > 0:
		return fmt.Errorf("tool call %s waits for allow or deny: %w", v.Use, dormouse.ErrInvalid)
	case v.Allow:
		d.addNamed(v.ID, dormouse.UserToolConfirmation, thread, d.c.By, v.confirmation())
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeOK, Result: v.ID})
	default:
		if err := dormouse.ValidateText(v.DenyMessage); err != nil {
			return err
		}
		d.addNamed(v.ID, dormouse.UserToolConfirmation, thread, d.c.By, v.confirmation())
		text := "The user did not allow this tool call."
		if v.DenyMessage != "" {
			text += " They said: " + v.DenyMessage
		}
		d.record(dormouse.AgentToolResult, thread, errorResult(v.Use, text))
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeDenied, Result: v.ID})
	}
	return nil
}

// unblock goes on with a turn that was blocked and has less to wait for.
func (d *draft) unblock(thread dormouse.ThreadID) {
	turn := d.Thread(thread).Turn
	if turn == nil || turn.Blocked != dormouse.BlockedOnPeople {
		return
	}
	if left := turn.gated(); len(left) > 0 {
		d.recordIdle(thread, dormouse.StopReason{Type: dormouse.StopRequiresAction, EventIDs: left})
		return
	}
	d.resume(thread, turn.ID)
}

// expire ends the questions that were not answered in time.
func (d *draft) expire() {
	for _, op := range d.Ops {
		if op.Expires.IsZero() || d.c.Now.Before(op.Expires) {
			continue
		}
		thread := op.Origin.Thread
		d.record(dormouse.QuestionExpired, thread, dormouse.Question{Use: op.Use, Expires: op.Expires})
		d.record(dormouse.AgentToolResult, thread, errorResult(op.Use, "Nobody answered this question in time."))
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeExpired})
		d.unblock(thread)
	}
}

// waiting finds the tool call that waits for people under this id.
func (d *draft) waiting(id dormouse.EventID) (*Thread, dormouse.Use, error) {
	for i := range d.Threads {
		if t := d.Threads[i].Turn; t != nil {
			if use, ok := t.Use(id); ok && use.Gate != dormouse.GateNone {
				return &d.Threads[i], use, nil
			}
		}
	}
	return nil, dormouse.Use{}, fmt.Errorf(
		"no tool call %s waits for an answer; it was answered, interrupted or never asked: %w", id, dormouse.ErrConflict)
}
