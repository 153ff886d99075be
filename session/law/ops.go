package law

import (
	"fmt"
	"reflect"
	"slices"
	"time"

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
		if op.Kind != dormouse.OpRead && CallSnapshotDue(d.State) {
			return ErrSnapshotDue
		}
		if d.Sandbox.Phase != SandboxActive || op.Generation != d.Sandbox.Generation {
			return fmt.Errorf("sandbox %d is not active: %w", op.Generation, dormouse.ErrConflict)
		}
		if err := d.answerable(turn, op.Use); err != nil {
			return err
		}
	case dormouse.OpMessage, dormouse.OpLook, dormouse.OpSnapshot:
		if err := d.answerable(turn, op.Use); err != nil {
			return err
		}
	case dormouse.OpCustom, dormouse.OpApproval, dormouse.OpQuestion, dormouse.OpSelf:
		return fmt.Errorf("op kind %s is started with its tool call: %w", op.Kind, dormouse.ErrInvalid)
	}
	d.openOp(thread, op, time.Time{})
	return nil
}

// answerable refuses a tool call that is not there, waits for people or is being
// answered already.
func (d *draft) answerable(turn *Turn, id dormouse.EventID) error {
	use, ok := turn.Use(id)
	if _, open := d.OpFor(id); !ok || use.Gate != dormouse.GateNone || open {
		return fmt.Errorf("tool call %s cannot run: %w", id, dormouse.ErrConflict)
	}
	return nil
}

// applyAction answers a tool call by changing the session itself. Start, effect and
// end are one commit, so that no crash can fall between them.
func (d *draft) applyAction(v ApplyAction) error {
	t, err := d.current(v.Work)
	if err != nil {
		return err
	}
	if err := d.answerable(t.Turn, v.Use); err != nil {
		return err
	}
	thread := t.ID
	use, _ := t.Turn.Use(v.Use)
	op := dormouse.Op{
		Kind: dormouse.OpSelf, Args: dormouse.DigestOf([]byte(v.Use)), Use: v.Use,
		Origin: dormouse.Origin{Thread: thread, Turn: v.Turn, Call: use.Call, Block: use.Block},
	}.Named(d.Session)
	d.openOp(thread, op, time.Time{})
	result := dormouse.ToolResult{Use: v.Use, Content: []dormouse.Block{dormouse.Text(v.Text)}}
	outcome := dormouse.OutcomeOK
	err = v.Failed
	if err == nil {
		err = d.change(v.Do)
	}
	if err != nil {
		result, outcome = errorResult(v.Use, err.Error()), dormouse.OutcomeError
	}
	d.add(dormouse.AgentToolResult, thread, result)
	open, _ := d.Op(op.ID)
	d.endOp(thread, open, dormouse.OpEnd{Outcome: outcome})
	return nil
}

// change makes the change that a tool call asks for, if an agent may ask for it.
func (d *draft) change(v Verb) error {
	if v == nil {
		return nil
	}
	if r, ok := d.rules[reflect.TypeOf(v)]; ok && r.Agent {
		return r.decide(d, v)
	}
	return fmt.Errorf("an agent cannot ask for %T: %w", v, dormouse.ErrInvalid)
}

// openOp writes an op's beginning. expires is that of a question.
func (d *draft) openOp(thread dormouse.ThreadID, op dormouse.Op, expires time.Time) {
	fact := dormouse.OpFact{Op: op, Expires: expires}
	if op.Kind == dormouse.OpModel {
		fact.Span = dormouse.SpanOf(op.ID)
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
	if d.isExec(op.Op) {
		return d.finishExec(op, v)
	}
	if d.TurnOf(op.Origin.Turn) == nil {
		d.endOp(op.Origin.Thread, op, dormouse.OpEnd{Outcome: v.Outcome, Usage: v.Usage, CostMicros: v.CostMicros, Estimated: v.Estimated})
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
	end := dormouse.OpEnd{
		Outcome: v.Outcome, Usage: v.Usage, CostMicros: v.CostMicros, Estimated: v.Estimated, Uses: v.Uses, Partial: v.Partial, Stop: v.Stop,
	}
	if len(v.Events) > 0 {
		end.Result = v.Events[0].ID
	}
	d.endOp(thread, op, end)
	for _, u := range v.Uses {
		d.gate(thread, turn, u)
	}
	return nil
}

// gate opens what a tool call waits for.
func (d *draft) gate(thread dormouse.ThreadID, turn dormouse.TurnID, u dormouse.Use) {
	var kind dormouse.OpKind
	var expires time.Time
	switch u.Gate {
	case dormouse.GateNone:
		return
	case dormouse.GateCustom:
		kind = dormouse.OpCustom
	case dormouse.GateAsk:
		kind = dormouse.OpApproval
	case dormouse.GateQuestion:
		kind, expires = dormouse.OpQuestion, d.c.Now.Add(u.Within)
	}
	d.openOp(thread, dormouse.Op{
		Kind: kind, Args: dormouse.DigestOf([]byte(u.ID)), Use: u.ID,
		Origin: dormouse.Origin{Thread: thread, Turn: turn, Call: u.Call, Block: u.Block},
	}.Named(d.Session), expires)
	if u.Gate == dormouse.GateQuestion {
		d.record(dormouse.QuestionAsked, thread, dormouse.Question{Use: u.ID, Expires: expires})
	}
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
	if answers := op.Kind.InSandbox() || op.Kind == dormouse.OpMessage || op.Kind == dormouse.OpLook; answers && len(v.Events) != 1 {
		return fmt.Errorf("op %s answers a tool call and brings no result: %w", op.ID, dormouse.ErrInvalid)
	}
	for _, u := range v.Uses {
		if !slices.ContainsFunc(v.Events, func(e dormouse.Event) bool { return e.ID == u.ID }) {
			return fmt.Errorf("tool call %s is not among the events: %w", u.ID, dormouse.ErrInvalid)
		}
		if (u.Gate == dormouse.GateQuestion) != (u.Within > 0) || u.Within > dormouse.MaxQuestionWithin {
			return fmt.Errorf("question %s may be answered within %s: %w", u.ID, u.Within, dormouse.ErrInvalid)
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
	d.loseOpenOp(op, v.Why)
	return nil
}

// loseOpenOp records that an op's outcome cannot be known, and tells the agent.
func (d *draft) loseOpenOp(op OpenOp, why string) {
	thread := op.Origin.Thread
	t := d.TurnOf(op.Origin.Turn)
	if t != nil && op.Use != "" {
		d.record(dormouse.AgentToolResult, thread, errorResult(op.Use, fmt.Sprintf(maybeRun, op.ID, why)))
	}
	if d.isExec(op.Op) {
		d.record(dormouse.ExecAnswered, "", dormouse.ExecAnswer{Exec: op.Use, Exit: -1, Unknown: true, Error: why})
	}
	d.record(dormouse.OpUnknown, thread, dormouse.OpEnd{Op: op.ID, Kind: op.Kind, Outcome: why})
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
			d.loseOpenOp(op, "its sandbox is gone")
		}
	}
}

// loseGeneration records as unknown every open op that only a sandbox which no
// longer exists could have answered.
func (d *draft) loseGeneration(generation uint64, why string) {
	for _, op := range d.Ops {
		if op.Generation == generation && op.Kind.Verdict(op.Keyed, false) == dormouse.VerdictUnknown {
			d.loseOpenOp(op, why)
		}
	}
}

func (d *draft) hasOpenOp(turn dormouse.TurnID) bool {
	return slices.ContainsFunc(d.Ops, func(o OpenOp) bool { return o.Origin.Turn == turn })
}

// closeOps ends the open ops of a turn that is over. What still runs in the sandbox stays
// open: Want has it killed, and its end recorded. A read is closed at once: it has no
// side effect, so its outcome does not matter.
func (d *draft) closeOps(thread dormouse.ThreadID, turn Turn) {
	doubtful := make(map[dormouse.EventID]dormouse.OpID) // cut off on their way to another system
	for _, op := range d.Ops {
		if op.Origin.Turn != turn.ID || op.Kind.InSandbox() && op.Kind != dormouse.OpRead {
			continue
		}
		end := dormouse.OpEnd{Outcome: dormouse.OutcomeInterrupted}
		if op.Kind == dormouse.OpModel {
			end.Usage, end.Estimated = op.Spent(d.c.Seen[op.ID], d.c.Counted[op.ID])
			end.CostMicros = op.Price.Micros(end.Usage)
		}
		if text := d.c.Seen[op.ID]; op.Kind == dormouse.OpModel && text != "" {
			end.Partial = dormouse.Brought(op.ID, dormouse.AgentMessage, 0)
			d.addNamed(end.Partial, dormouse.AgentMessage, thread, dormouse.ActorAgent,
				dormouse.Message{Content: []dormouse.Block{dormouse.Text(text)}})
		}
		if op.Kind == dormouse.OpMessage || op.Kind == dormouse.OpSnapshot {
			doubtful[op.Use] = op.ID
		}
		d.endOp(thread, op, end)
	}
	for _, use := range turn.Uses {
		text := notRun
		id, doubt := doubtful[use.ID]
		if op, open := d.OpFor(use.ID); open {
			id, doubt = op.ID, true
		}
		if doubt {
			text = fmt.Sprintf(maybeRun, id, "it was interrupted")
		}
		d.record(dormouse.AgentToolResult, thread, errorResult(use.ID, text))
	}
}
