package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// perform runs one tool call to its result, at most once. It resumes an op that an
// earlier attempt left open: the runner knows whether that is running, finished or was
// never seen.
func (t *turn) perform(ctx context.Context, use dormouse.Use) error {
	asked, err := t.asked(use.ID)
	if err != nil {
		return err
	}
	asks, err := t.tools.Call(t.view.Agent.Tools, asked.Name, asked.Input)
	if _, open := t.opFor(use.ID); err != nil && !open {
		return t.performAction(ctx, use, tool.Nothing{Why: err.Error()})
	}
	if err != nil {
		return &Failure{Type: "unknown_error", Final: true, Err: fmt.Errorf("tool call %s runs and cannot be read: %w", use.ID, err)}
	}
	if asks.Action != nil {
		return t.performAction(ctx, use, asks.Action)
	}
	call := asks.Call
	if call.Kind == dormouse.OpExec {
		call.Exec.Shell = string(t.view.Shell) // every thread has a shell of its own
	}
	box, generation, err := t.j.Sandbox(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Failure{Type: "unknown_error", After: backoff(t.view.Attempt), Err: err}
	}
	op, open := t.opFor(use.ID)
	if open && op.Kind.Verdict(op.Keyed, op.Generation == generation) == dormouse.VerdictUnknown {
		return nil // its sandbox was lost meanwhile; by now the record says so
	}
	switch {
	case !open:
		op = t.toolOp(use, call, generation)
	case !t.justStarted(op):
		crash.At(crash.RecoverAttach)
	}
	call.Op = op.ID
	result, err := t.runOp(ctx, box, op, call, open)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sandbox.ErrGone):
		return t.j.Gone(ctx, generation) // the record will say that the op's outcome is unknown
	case errors.Is(err, runner.ErrStale), errors.Is(err, dormouse.ErrConflict):
		return err
	default:
		return &Failure{Type: "unknown_error", After: backoff(t.view.Attempt), Err: err}
	}
	crash.At(crash.OpResult)
	content, failed := t.tools.Result(asked.Name, result)
	if err := t.finish(ctx, answered(op, content, failed), t.callAfterTools(content)); err != nil {
		return err
	}
	box.Forget(op.ID)
	crash.At(crash.OpForgotten)
	return nil
}

// answered is the Finish of an op whose result answers a tool call.
func answered(op dormouse.Op, content []dormouse.Block, failed bool) Finish {
	outcome := dormouse.OutcomeOK
	if failed {
		outcome = dormouse.OutcomeError
	}
	return Finish{Op: op.ID, Outcome: outcome, Events: []dormouse.Event{
		event(op, 0, dormouse.AgentToolResult, dormouse.ToolResult{Use: op.Use, Content: content, IsError: failed}),
	}}
}

// toolOp is the op of a tool call.
func (t *turn) toolOp(use dormouse.Use, call runner.Call, generation uint64) dormouse.Op {
	call.Op = ""
	return dormouse.Op{
		Kind: call.Kind, Args: digest(call), Generation: generation, Use: use.ID,
		Origin: dormouse.Origin{Thread: t.view.Thread, Turn: t.view.Turn, Call: use.Call, Block: use.Block},
	}.Named(t.view.Session)
}

// callAfterTools is the op of the model call that follows the last tool call, given
// its result.
func (t *turn) callAfterTools(result []dormouse.Block) *dormouse.Op {
	if len(t.view.Uses) != 1 || t.view.Calls >= maxCalls {
		return nil
	}
	m, err := t.model()
	if err != nil {
		return nil // the next step returns the error
	}
	if t.size == 0 { // this attempt has made no request yet
		t.request()
	}
	op := t.nextCall(m)
	op.Asks += dormouse.Tokens(len(dormouse.Encode(result)))
	return &op
}

// runOp records the op unless it is open, sends it and waits for its result.
func (t *turn) runOp(ctx context.Context, box sandbox.Sandbox, op dormouse.Op, call runner.Call, open bool) (runner.Result, error) {
	if !open {
		crash.At(crash.OpStarting)
		if err := t.j.Start(ctx, op); err != nil {
			return runner.Result{}, err
		}
		crash.At(crash.OpStarted)
	}
	sent := func() { crash.At(crash.OpSent) }
	return box.Run(ctx, call, sent, func(out []byte) { t.j.Show(op.Use, out) })
}

func (t *turn) opFor(use dormouse.EventID) (dormouse.Op, bool) {
	for _, op := range t.view.Ops {
		if op.Use == use {
			return op, true
		}
	}
	return dormouse.Op{}, false
}

// asked finds what the model asked for.
func (t *turn) asked(use dormouse.EventID) (dormouse.ToolUse, error) {
	for _, e := range slices.Backward(t.events) {
		if e.ID != use {
			continue
		}
		var p dormouse.ToolUse
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			return p, fmt.Errorf("read tool call %s: %w", use, err)
		}
		return p, nil
	}
	return dormouse.ToolUse{}, fmt.Errorf("tool call %s is not in the log: %w", use, dormouse.ErrNotFound)
}
