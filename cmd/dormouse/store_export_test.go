package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

func TestAnExportGoesToStandardOutput(t *testing.T) {
	old := transfertest.OldData(t)
	file := filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	out, errs := storeCommand(t, 0, old, "export", "-")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out != string(b) || !strings.Contains(errs, "exported 6 sessions") {
		t.Errorf("%d bytes, want %d; said %s", len(out), len(b), errs)
	}
}

// A payload that a failing disk has taken costs itself, and is told.
func TestALostPayloadIsReportedAndCostsNothingElse(t *testing.T) {
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	d := transfertest.Open(t, old)
	var lost []dormouse.Digest
	for _, e := range transfertest.Log(t, d, transfertest.Large) {
		if e.Blob != "" {
			lost = append(lost, e.Blob)
		}
	}
	if err := errors.Join(d.Blobs.Delete(t.Context(), lost[len(lost)-1]), d.Store.Close()); err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(string(lost[1]), "sha256:")
	if err := os.WriteFile(filepath.Join(old, "blobs", "sha256", hex[:2], hex), []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs := storeCommand(t, exitNeedsAttention, old, "export", file)
	if strings.Count(errs, string(transfertest.Large)+": the payload of event") != 2 || !strings.Contains(out, "2 blobs could not be read") {
		t.Errorf("said %s%s", out, errs)
	}
	storeCommand(t, 0, data, "import", file)
	was, is := transfertest.Contents(t, transfertest.Open(t, old)), transfertest.Contents(t, transfertest.Open(t, data))
	if was[transfertest.Large].Log != is[transfertest.Large].Log || len(is) != 6 {
		t.Errorf("%d sessions, the log is %s, was %s", len(is), is[transfertest.Large].Log, was[transfertest.Large].Log)
	}
}
