//go:build linux

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// over is the fleet's world as a client of the i-th server sees it.
func (f *fleet) over(i int) *world {
	w := *f.world
	w.Keeper = f.keepers[i]
	return &w
}

// Any server takes a session back, whichever has it.
func TestASessionIsTakenBackOverAnyServer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	pg, name := sharedDatabase(t)
	f := newFleet(t, 2, pg, name)
	ask := func(i int, args ...string) string {
		t.Helper()
		return f.over(i).cli(append(args, "--server", "http://"+f.life(i).Addr())...)
	}
	id := strings.TrimSpace(ask(0, "session", "create", "--model", "offline"))
	a := &actor{w: f.world, Session: &rig.Session{Client: f.Client, ID: dormouse.SessionID(id)}}
	turn := func(i int, command string, snapshots int) {
		t.Helper()
		ask(i, "session", "send", id, "$ "+command, "--follow")
		f.until("there is a snapshot of the turn", func() bool { return strings.Count(ask(i, "snapshot", "list", id), "snap_") == snapshots })
	}
	turn(0, "echo one >a", 1)
	has := f.owner(a, -1)
	other := 1 - has

	named := strings.TrimSpace(ask(other, "snapshot", "create", id, "--label", "over the other"))
	turn(other, "rm a", 3)
	if got := ask(has, "snapshot", "diff", id, named, strings.Fields(ask(has, "snapshot", "list", id))[5]); !strings.HasPrefix(got, "- a\n") {
		t.Errorf("it differs by %q", got)
	}
	ask(other, "revert", id)
	if got := ask(other, "exec", id, "cat a"); got != "one\n" {
		t.Errorf("reverted it is %q", got)
	}
	turn(other, "rm a; echo two >b", 4) // with what the revert replaced
	ask(other, "snapshot", "restore", id, named)
	if got := ask(has, "exec", id, "cat *"); got != "one\n" {
		t.Errorf("restored it is %q", got)
	}
	for range 2 {
		ask(other, "snapshot", "delete", id, named)
	}
	if got := ask(has, "log", id); strings.Contains(got, "over the other") || !strings.Contains(got, "went back to its files") {
		t.Errorf("the line is\n%s", got)
	}

	// The server that has it dies. The other one takes it over at once: a client that
	// asks waits until it has the session.
	f.keepers[has].Between = func(int) { _ = sleep.For(f.ctx, 3*lease) }
	f.life(has).Kill()
	ask(other, "revert", id)
	if got := ask(other, "exec", id, "cat *"); got != "one\n" {
		t.Errorf("reverted over the other server it is %q", got)
	}
}
