package law_test

import (
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// What went unseen before servers recorded it is not taken for nothing.
func TestALogThatDoesNotSayWhoCameInIsNotRevertedToNothing(t *testing.T) {
	w := newWorld(t, dormouse.Created{})
	w.must(law.Warm{}, law.SandboxUp{Generation: 1, Snapshots: dormouse.SnapshotsByTurn})
	if s := w.state.Workspace; s.Touched == 0 {
		t.Errorf("of a sandbox that nobody watched: %+v", s)
	}
}

func TestFilesThatChangeWhileASessionGoesBackAreKeptToo(t *testing.T) {
	w := newWorld(t, dormouse.Created{})
	w.state.Workspace.Policy, w.state.Workspace.Touched = dormouse.SnapshotsByTurn, w.state.Seq
	swap := law.Swap{WorkspaceSwap: dormouse.WorkspaceSwap{Number: w.state.Workspace.Number + 1, Reason: dormouse.SwapRestored}}
	if _, err := law.Decide(w.state, law.Command{By: dormouse.User("ada"), Verb: swap}); !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("files that no snapshot holds were replaced: %v", err)
	}
	swap.Discard = true
	if _, err := law.Decide(w.state, law.Command{By: dormouse.User("ada"), Verb: swap}); err != nil {
		t.Error(err)
	}
}
