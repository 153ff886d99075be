//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// there lists what lies in a directory.
func there(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A server that is killed leaves a workspace that no sandbox has started with, or
// one that should have been removed.
func TestWorkspacesOfKilledServersAreMadeAgainOrRemoved(t *testing.T) {
	dir, base := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), []byte("base"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	first := create(t, d, fence(1, 1))
	sh(t, first, "op_1", "echo mine >file")
	if err := d.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"@1/other", "@2/other", "@2.new/half", "@3.new/half"} {
		name := filepath.Join(dir, "workspaces", string(session)+left)
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.Create(within(t), sandbox.Spec{Fence: fence(2, 2), Workspace: sandbox.Workspace{Number: 3, Base: "snap_1", Layers: []string{base}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(), d.Stop(within(t), s.Handle(), sandboxtest.Newest(s.Handle())) })
	if got := sh(t, s, "op_2", "cat file; ls"); got != "basefile" {
		t.Errorf("found %q", got)
	}
	if diff := cmp.Diff([]string{string(session) + "@3"}, there(t, filepath.Join(dir, "workspaces"))); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3"}, there(t, filepath.Join(dir, "sandboxes", string(session), "marks"))); diff != "" {
		t.Errorf("marks left (-want +got):\n%s", diff)
	}
	if at, err := d.Workspace(session); err != nil || filepath.Base(at) != string(session)+"@3" {
		t.Errorf("the workspace is at %s, %v", at, err)
	}
	if err := d.Remove(within(t), runner.Fence{Session: session, Generation: 100, Epoch: 100}); err != nil {
		t.Fatal(err)
	}
	if left := append(there(t, filepath.Join(dir, "workspaces")), there(t, filepath.Join(dir, "sandboxes"))...); len(left) > 0 {
		t.Errorf("left of a session that was removed: %v", left)
	}
}
