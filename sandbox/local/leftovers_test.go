package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Notes that a killed server has not finished go with the next sweep.
func TestSweepRemovesUnfinishedNotes(t *testing.T) {
	base := t.TempDir()
	d := open(t, base)
	dir := filepath.Join(base, "sandboxes", "sesn_1")
	old, young := filepath.Join(dir, ".tmp-1"), filepath.Join(dir, ".tmp-2")
	when := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(old, nil, 0o600), os.WriteFile(young, nil, 0o600), os.Chtimes(old, when, when)); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(t.Context(), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(old); err == nil {
		t.Error("it is left")
	}
	if _, err := os.Lstat(young); err != nil {
		t.Errorf("what may be written to: %v", err)
	}
}
