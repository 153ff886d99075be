package session

import (
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// What a model is told in place of a tool's result.
const (
	notRun   = "Tool execution was interrupted before completion. Please retry."
	maybeRun = "The outcome of this tool call is unknown: operation %s may have executed (%s). Verify before retrying."
)

// startOp records an op before any byte of it leaves.
func (d *draft) startOp(v StartOp) error {
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	thread, turn, op := t.ID, t.Turn, v.Op
	if op.Origin.Turn != turn.ID || op.Origin.Thread != thread || op != op.Named(d.Session) {
		return fmt.Errorf("op %s is not of turn %s: %w", op.ID, turn.ID, dormouse.ErrInvalid)
	}
	if _, open := d.Op(op.ID); open {
		return fmt.Errorf("op %s is open already: %w", op.ID, dormouse.ErrConflict)
	}
	switch op.Kind {
	case dormouse.OpModel:
		call, try, retryOf := turn.Calls+1, 0, dormouse.OpID("")
		if turn.Redo != nil {
			call, try, retryOf = turn.Calls, turn.Redo.Try+1, turn.Redo.Op
		}
		if op.Origin.Call != call || op.Try != try || op.RetryOf != retryOf ||
			len(turn.Uses) > 0 || turn.Stop != "" || d.hasOpenOp(turn.ID) {
			return fmt.Errorf("model call %d is not next: %w", op.Origin.Call, dormouse.ErrConflict)
		}
	case dormouse.OpExec, dormouse.OpTask, dormouse.OpWrite, dormouse.OpRead:
		if d.Sandbox.Phase != SandboxActive || op.Generation != d.Sandbox.Generation {
			return fmt.Errorf("sandbox %d is not active: %w", op.Generation, dormouse.ErrConflict)
		}
		use, ok := turn.Use(op.Use)
		_, open := d.OpFor(op.Use)
		if !ok || use.Gate != dormouse.GateNone || open {
			return fmt.Errorf("tool call %s cannot run: %w", op.Use, dormouse.ErrConflict)
		}
	case dormouse.OpCustom, dormouse.OpApproval:
		return fmt.Errorf("op kind %s is started with its tool call: %w", op.Kind, dormouse.ErrInvalid)
	}
	d.openOp(thread, op)
	return nil
}

func (d *draft) openOp(thread dormouse.ThreadID, op dormouse.Op) {
	fact := dormouse.OpFact{Op: op}
	if op.Kind == dormouse.OpModel {
		fact.Span = dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(op.ID), "span"))
	}
	d.add(dormouse.OpStarted, thread, fact)
	if fact.Span != "" {
		d.addNamed(fact.Span, dormouse.SpanModelRequestStart, thread, dormouse.ActorAgent, struct{}{})
	}
}

// finishOp records an op's end and what it brought. The end of an op whose turn
// is over is kept as evidence and brings nothing.
func (d *draft) finishOp(v FinishOp) error {
	op, open := d.Op(v.Op)
	if !open {
		return fmt.Errorf("op %s is not open: %w", v.Op, dormouse.ErrConflict)
	}
	if d.turnOf(op.Origin.Turn) == nil {
		d.endOp(op.Origin.Thread, op, dormouse.OpEnd{Outcome: v.Outcome, Usage: v.Usage})
		return nil
	}
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	if op.Origin.Turn != t.Turn.ID {
		return fmt.Errorf("op %s is not of turn %s: %w", op.ID, v.Turn, dormouse.ErrInvalid)
	}
	thread, turn := t.ID, t.Turn.ID
	if err := checkBrought(op, v); err != nil {
		return err
	}
	for _, e := range v.Events {
		d.addNamed(e.ID, e.Type, thread, dormouse.ActorAgent, e.Payload)
	}
	end := dormouse.OpEnd{Outcome: v.Outcome, Usage: v.Usage, Uses: v.Uses, Partial: v.Partial, Stop: v.Stop}
	if len(v.Events) > 0 {
		end.Result = v.Events[0].ID
	}
	d.endOp(thread, op, end)
	for _, u := range v.Uses {
		kind := dormouse.OpApproval
		switch u.Gate {
		case dormouse.GateNone:
			continue
		case dormouse.GateCustom:
			kind = dormouse.OpCustom
		case dormouse.GateAsk:
		}
		d.openOp(thread, dormouse.Op{
			Kind: kind, Args: dormouse.DigestOf([]byte(u.ID)), Use: u.ID,
			Origin: dormouse.Origin{Thread: thread, Turn: turn, Call: u.Call, Block: u.Block},
		}.Named(d.Session))
	}
	return nil
}

// checkBrought refuses events that an op of this kind cannot bring.
func checkBrought(op OpenOp, v FinishOp) error {
	for _, e := range v.Events {
		var ok bool
		switch e.Type { //nolint:exhaustive // every other type is refused
		case dormouse.AgentMessage, dormouse.AgentThinking, dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
			ok = op.Kind == dormouse.OpModel
		case dormouse.AgentToolResult:
			ok = op.Kind == dormouse.OpModel || len(v.Events) == 1
		}
		if !ok {
			return fmt.Errorf("a %s op brings no %s: %w", op.Kind, e.Type, dormouse.ErrInvalid)
		}
	}
	if op.Kind.InSandbox() && len(v.Events) != 1 {
		return fmt.Errorf("op %s answers a tool call and brings no result: %w", op.ID, dormouse.ErrInvalid)
	}
	for _, u := range v.Uses {
		if !slices.ContainsFunc(v.Events, func(e dormouse.Event) bool { return e.ID == u.ID }) {
			return fmt.Errorf("tool call %s is not among the events: %w", u.ID, dormouse.ErrInvalid)
		}
	}
	return nil
}

// endOp closes an op in the journal, and the span of a model call with it.
func (d *draft) endOp(thread dormouse.ThreadID, op OpenOp, end dormouse.OpEnd) {
	if op.Span != "" {
		d.addNamed("", dormouse.SpanModelRequestEnd, thread, dormouse.ActorAgent, dormouse.SpanEnd{
			Start: op.Span, IsError: end.Outcome != dormouse.OutcomeOK, Usage: end.Usage,
		})
	}
	end.Op, end.Kind = op.ID, op.Kind
	d.add(dormouse.OpFinished, thread, end)
}

func (d *draft) loseOp(v LoseOp) error {
	op, open := d.Op(v.Op)
	if !open {
		return fmt.Errorf("op %s is not open: %w", v.Op, dormouse.ErrConflict)
	}
	if op.Kind.Verdict(op.Keyed, false) != dormouse.VerdictUnknown {
		return fmt.Errorf("a %s op is never of unknown outcome: %w", op.Kind, dormouse.ErrConflict)
	}
	d.lose(op, v.Why)
	return nil
}

// lose records that an op's outcome cannot be known, and tells the agent.
func (d *draft) lose(op OpenOp, why string) {
	thread := op.Origin.Thread
	t := d.turnOf(op.Origin.Turn)
	if t != nil && op.Use != "" {
		d.tell(dormouse.AgentToolResult, thread, errorResult(op.Use, fmt.Sprintf(maybeRun, op.ID, why)))
	}
	d.tell(dormouse.OpUnknown, thread, dormouse.OpEnd{Op: op.ID, Kind: op.Kind, Outcome: why})
}

func errorResult(use dormouse.EventID, text string) dormouse.ToolResult {
	return dormouse.ToolResult{Use: use, Content: []dormouse.Block{dormouse.Text(text)}, IsError: true}
}

// loseStranded records as unknown every open op of a turn whose sandbox is not
// the one it was sent to.
func (d *draft) loseStranded(turn dormouse.TurnID) {
	for _, op := range d.Ops {
		same := op.Generation == d.Sandbox.Generation && d.Sandbox.Phase != SandboxCold
		if op.Origin.Turn == turn && op.Kind.Verdict(op.Keyed, same) == dormouse.VerdictUnknown {
			d.lose(op, "its sandbox is gone")
		}
	}
}

// loseGeneration records as unknown every open op that only a sandbox which no
// longer exists could have answered.
func (d *draft) loseGeneration(generation uint64, why string) {
	for _, op := range d.Ops {
		if op.Generation == generation && op.Kind.Verdict(op.Keyed, false) == dormouse.VerdictUnknown {
			d.lose(op, why)
		}
	}
}

func (d *draft) hasOpenOp(turn dormouse.TurnID) bool {
	return slices.ContainsFunc(d.Ops, func(o OpenOp) bool { return o.Origin.Turn == turn })
}

// closeOps ends the open work of a turn that is over. What a sandbox is still
// doing stays open: Want has it killed, and its end recorded. A read does
// nothing, so there is nothing to wait for, and no loss of a sandbox that would
// ever end it.
func (d *draft) closeOps(thread dormouse.ThreadID, turn Turn) {
	for _, op := range d.Ops {
		if op.Origin.Turn != turn.ID || op.Kind.InSandbox() && op.Kind != dormouse.OpRead {
			continue
		}
		end := dormouse.OpEnd{Outcome: dormouse.OutcomeInterrupted}
		if text := d.c.Seen[op.ID]; op.Kind == dormouse.OpModel && text != "" {
			end.Partial = eventID(d.Session, d.Seq+1)
			d.addNamed(end.Partial, dormouse.AgentMessage, thread, dormouse.ActorAgent,
				dormouse.Message{Content: []dormouse.Block{dormouse.Text(text)}})
		}
		d.endOp(thread, op, end)
	}
	for _, use := range turn.Uses {
		text := notRun
		if op, open := d.OpFor(use.ID); open {
			text = fmt.Sprintf(maybeRun, op.ID, "it was interrupted")
		}
		d.tell(dormouse.AgentToolResult, thread, errorResult(use.ID, text))
	}
}

// answer gives a tool call that waits for people what they said. The first
// answer wins.
func (d *draft) answer(v Answer) error {
	t, use, err := d.waiting(v.Use)
	if err != nil {
		return err
	}
	op, open := d.OpFor(v.Use)
	if !open {
		return fmt.Errorf("tool call %s is not waiting: %w", v.Use, dormouse.ErrConflict)
	}
	thread, turn := t.ID, *t.Turn
	switch {
	case use.Gate == dormouse.GateCustom:
		if v.Allow || v.Deny {
			return fmt.Errorf("tool call %s waits for a result, not for a permission: %w", v.Use, dormouse.ErrInvalid)
		}
		if err := dormouse.ValidateContent(v.Content); err != nil {
			return err
		}
		d.addNamed(v.ID, dormouse.UserCustomToolResult, thread, d.c.By,
			dormouse.CustomToolResult{Use: v.Use, Content: v.Content, IsError: v.IsError})
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeOK, Result: v.ID})
	case v.Allow == v.Deny || len(v.Content) > 0:
		return fmt.Errorf("tool call %s waits for allow or deny: %w", v.Use, dormouse.ErrInvalid)
	case v.Allow:
		d.addNamed(v.ID, dormouse.UserToolConfirmation, thread, d.c.By, dormouse.ToolConfirmation{Use: v.Use, Result: "allow"})
		d.endOp(thread, op, dormouse.OpEnd{Outcome: dormouse.OutcomeOK, Result: v.ID})
	default:
		if err := dormouse.ValidateText(v.DenyMessage); err != nil {
			return err
		}
		d.addNamed(v.ID, dormouse.UserToolConfirmation, thread, d.c.By,
			dormouse.ToolConfirmation{Use: v.Use, Result: "deny", DenyMessage: v.DenyMessage})
		text := "The user did not allow this tool call."
		if v.DenyMessage != "" {
			text += " They said: " + v.DenyMessage
		}
		d.tell(dormouse.AgentToolResult, thread, errorResult(v.Use, text))
		d.endOp(thread, op, dormouse.OpEnd{Outcome: "denied", Result: v.ID})
	}
	if turn.Blocked != dormouse.BlockedOnPeople {
		return nil
	}
	if left := d.Thread(thread).Turn.gated(); len(left) > 0 {
		d.tellIdle(thread, dormouse.StopReason{Type: dormouse.StopRequiresAction, EventIDs: left})
		return nil
	}
	d.resume(thread, turn.ID)
	return nil
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
