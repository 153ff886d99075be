// Package localtest gives tests real sandboxes: a local driver with a runner
// built for the occasion, whose sandboxes end with the test.
package localtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/local"
)

// Open returns a driver. It must be asked for before whatever uses it, so that
// it is cleared up after.
func Open(t testing.TB) *local.Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "box") //nolint:usetesting // a test's own has a name too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := local.New(local.Options{Dir: dir, Instance: filepath.Base(dir), Runner: Runner(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nobody := func(dormouse.SessionID) sandbox.Owned { return sandbox.Owned{} }
		if err := d.Sweep(context.WithoutCancel(t.Context()), nobody); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Runner builds the program that runs inside sandboxes and returns its path.
func Runner(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dormouse-runner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/dormouse-run/dormouse/cmd/dormouse-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the runner: %v\n%s", err, out)
	}
	return path
}
