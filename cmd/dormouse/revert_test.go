//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/local"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot"
)

// slow is a driver that takes its time to capture a workspace.
type slow struct{ *local.Driver }

func (d slow) Snapshot(ctx context.Context, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	time.Sleep(200 * time.Millisecond)
	return d.Driver.Snapshot(ctx, c)
}

func TestSendThatFollowsReturnsWhenTheTurnCanBeGoneBackTo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	layers := filepath.Join(t.TempDir(), "snapshots")
	o := newOfficeOn(t, slow{localtest.Open(t)}, func(c *session.Config) {
		var err error
		if c.Snapshots, err = snapshot.Open(snapshot.Options{Dir: layers, Blobs: c.Blobs}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Snapshots.Close() })
	})
	id := o.create()
	o.must("exec", id, "echo mine >mine")
	o.must("session", "send", id, `SCRIPT[{"tool":"bash","input":{"command":"rm mine"}},{"text":"done"}]`, "--follow")
	list := o.must("snapshot", "list", id)
	if strings.Count(list, "snap_") != 2 || !strings.Contains(list, "before") || !strings.Contains(list, "turn") {
		t.Errorf("when the turn was over there were\n%s", list)
	}
	out := o.must("revert", id)
	if got := o.must("exec", id, "cat mine"); got != "mine\n" {
		t.Errorf("reverted: %q", got)
	}
	_, back, ok := strings.Cut(out, "The files it had are kept: dormouse ")
	if !ok {
		t.Fatalf("it does not say how to come back: %s", out)
	}
	if out := o.must(strings.Fields(back)...); !strings.Contains(out, "goes on with the files of") {
		t.Errorf("came back: %s", out)
	}
	if _, _, code := o.run("exec", id, "cat mine"); code == 0 {
		t.Error("what the turn removed is there")
	}
	// A turn that changes nothing has none to wait for.
	o.must("session", "send", id, "hello", "--follow")
}
