package agent

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// performAction performs the action of a tool call. An action that changes the session
// itself is one commit with its result. An action on another session is an op; it is
// idempotent, so it may be repeated after a crash.
func (t *turn) performAction(ctx context.Context, use dormouse.Use, action tool.Action) error {
	kind, args := dormouse.OpLook, dormouse.Encode(action)
	switch action.(type) {
	case tool.Message:
		kind = dormouse.OpMessage
	case tool.Snapshot:
		kind = dormouse.OpSnapshot
	case tool.Wait, tool.Look:
	case tool.Nothing, tool.Restore, tool.Snapshots, tool.DeleteSnapshot, tool.Question, tool.Schedule, tool.Unschedule, tool.Wakeups, tool.Spawn, tool.EndChild:
		return t.j.Apply(ctx, use, action)
	}
	op, open := t.opFor(use.ID)
	if !open {
		op = dormouse.Op{
			Kind: kind, Args: dormouse.DigestOf(args), Use: use.ID,
			Origin: dormouse.Origin{Thread: t.view.Thread, Turn: t.view.Turn, Call: use.Call, Block: use.Block},
		}.Named(t.view.Session)
		crash.At(crash.OpStarting)
		if err := t.j.Start(ctx, op); err != nil {
			return err
		}
		crash.At(crash.OpStarted)
	}
	text, failed, err := t.j.Reach(ctx, op, action)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, dormouse.ErrConflict):
		return err
	default:
		return &Failure{Type: "unknown_error", After: backoff(t.view.Attempt), Err: err}
	}
	crash.At(crash.OpResult)
	result := []dormouse.Block{dormouse.Text(dormouse.CleanText(text))}
	return t.finish(ctx, answered(op, result, failed), t.callAfterTools(result))
}
