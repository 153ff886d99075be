package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

func TestWorkspacesOnlyGoOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latest")
	latest := sandbox.Latest(file)
	takes := func(w sandbox.Workspace, want error) {
		t.Helper()
		if _, err := latest.Check(w); !errors.Is(err, want) {
			t.Errorf("workspace %d is taken with %v, want %v", w.Number, err, want)
		}
	}
	takes(sandbox.Workspace{}, nil)
	takes(sandbox.Workspace{Layers: []string{"/layer"}}, dormouse.ErrInvalid)
	takes(sandbox.Workspace{Number: 2, Layers: []string{"/layer"}}, nil)
	if err := latest.Record(2); err != nil {
		t.Fatal(err)
	}
	if n, err := latest.Number(); n != 2 || err != nil {
		t.Errorf("the latest is %d, %v", n, err)
	}
	takes(sandbox.Workspace{Number: 1}, runner.ErrStale)
	takes(sandbox.Workspace{Number: 2}, nil)
	takes(sandbox.Workspace{Number: 3}, nil)
	if err := os.WriteFile(file, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := latest.Check(sandbox.Workspace{Number: 3}); err == nil {
		t.Error("a note that makes no sense is believed")
	}
}
