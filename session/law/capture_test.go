package law_test

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestASnapshotIsRedundantOnlyIfAnotherOneHasItsFiles(t *testing.T) {
	s := law.State{Workspace: law.Workspace{Newest: "snap_new", Base: "snap_base"}, Snapshots: []law.Snapshot{{ID: "snap_new"}}}
	deleted := law.State{Workspace: s.Workspace}
	sealed := law.State{Workspace: law.Workspace{Newest: "snap_base", Base: "snap_base"}}
	for name, c := range map[string]struct {
		state  law.State
		reason string
		since  dormouse.SnapshotID
		want   bool
	}{
		"of a turn, since the newest":                     {s, dormouse.SnapshotOfTurn, "snap_new", true},
		"of a turn, since the newest, which was deleted":  {deleted, dormouse.SnapshotOfTurn, "snap_new", false},
		"of a turn, since the base":                       {s, dormouse.SnapshotOfTurn, "snap_base", false},
		"asked for":                                       {s, dormouse.SnapshotAsked, "snap_new", false},
		"to seal, and the workspace lies over the newest": {sealed, dormouse.SnapshotSealing, "snap_base", true},
		"to seal, and it does not":                        {s, dormouse.SnapshotSealing, "snap_new", false},
	} {
		if got := (law.WantedSnapshot{Reason: c.reason}).Redundant(c.state, c.since); got != c.want {
			t.Errorf("%s: redundant %v, want %v", name, got, c.want)
		}
	}
}

func TestAWorkspaceIsNotSealedAsMoreThanItsDisk(t *testing.T) {
	s := law.State{Environment: dormouse.Environment{Limits: dormouse.Limits{Disk: 10}}}
	layers := []dormouse.Layer{{Bytes: 6}, {Bytes: 5}}
	sealing := law.WantedSnapshot{Reason: dormouse.SnapshotSealing}
	if !sealing.TooLarge(s, layers) || sealing.TooLarge(s, layers[:1]) || sealing.TooLarge(law.State{}, layers) {
		t.Error("the disk limit does not decide")
	}
	if (law.WantedSnapshot{Reason: dormouse.SnapshotOfTurn}).TooLarge(s, layers) {
		t.Error("a snapshot that seals nothing was refused")
	}
}

func TestChangesAreAddedToTheChainTheyWereCapturedSince(t *testing.T) {
	newest, base := []dormouse.Layer{{DiffID: "a"}, {DiffID: "b"}}, []dormouse.Layer{{DiffID: "a"}}
	s := law.State{Workspace: law.Workspace{Newest: "snap_new", Chain: newest, Base: "snap_base", Layers: base}}
	for since, want := range map[dormouse.SnapshotID]int{"": 0, "snap_new": 2, "snap_base": 1} {
		if chain, err := s.ChainSince(since); err != nil || len(chain) != want {
			t.Errorf("since %q: %d layers, %v", since, len(chain), err)
		}
	}
	if _, err := s.ChainSince("snap_other"); err == nil {
		t.Error("changes since a snapshot that the session does not build upon were taken")
	}
}

func TestASandboxIsStartedForWhoWaits(t *testing.T) {
	cold := law.Wanted{}
	if cold.Warm(false) || !cold.Warm(true) || !(law.Wanted{Execs: []law.Exec{{}}}).Warm(false) {
		t.Error("a cold sandbox is started exactly if somebody waits for it")
	}
	active := law.Wanted{Sandbox: law.WantedSandbox{Phase: law.SandboxActive}}
	if active.Warm(true) || active.Attach(false) || !active.Attach(true) || cold.Attach(true) {
		t.Error("a sandbox that runs is reached exactly if somebody waits for it")
	}
}
