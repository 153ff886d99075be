package law_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// The law refuses a call before the snapshot of the one before is made, and nothing else.
func TestTheLawHasCallsWaitForSnapshots(t *testing.T) {
	w := newWorld(t, dormouse.Created{Warm: true})
	w.must(law.SandboxUp{Generation: 1, Handle: json.RawMessage(`{}`), Snapshots: dormouse.SnapshotsByCall}, w.prompt("p1"), w.take("p1"))
	w.ask(dormouse.GateNone, dormouse.GateNone)
	start := func(kind dormouse.OpKind) error {
		_, err := w.try(law.StartOp{Work: w.work(), Op: w.execOp(kind)})
		return err
	}
	op := w.execOp(dormouse.OpExec)
	w.must(law.StartOp{Work: w.work(), Op: op}, w.toolResult(op))
	if want := law.Want(w.state).Snapshot; want == nil || want.Reason != dormouse.SnapshotOfCall {
		t.Fatalf("wanted is %+v", want)
	}
	if err := start(dormouse.OpExec); !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("a call before the snapshot is taken: %v", err)
	}
	w.must(w.snapshot())
	if want := law.Want(w.state).Snapshot; want != nil {
		t.Errorf("wanted is %+v", want)
	}
	if err := start(dormouse.OpExec); err != nil {
		t.Errorf("a call after it was made: %v", err)
	}
}

func TestReadsWaitForNoSnapshot(t *testing.T) {
	w := newWorld(t, dormouse.Created{Warm: true})
	w.must(law.SandboxUp{Generation: 1, Handle: json.RawMessage(`{}`), Snapshots: dormouse.SnapshotsByCall}, w.prompt("p1"), w.take("p1"))
	w.ask(dormouse.GateNone, dormouse.GateNone, dormouse.GateNone)
	for _, kind := range []dormouse.OpKind{dormouse.OpWrite, dormouse.OpRead} {
		op := w.execOp(kind)
		w.must(law.StartOp{Work: w.work(), Op: op}, w.toolResult(op))
	}
	w.must(w.snapshot())
	if want := law.Want(w.state).Snapshot; want != nil {
		t.Errorf("a read has a snapshot: %+v", want)
	}
}
