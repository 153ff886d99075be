package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/store/transfer"
)

// openAt opens a deployment as the commands do.
func openAt(t *testing.T, data string, where dsn) transfer.Deployment {
	t.Helper()
	s, err := openStore(t.Context(), data, where, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	blobs, err := dir.Open(filepath.Join(data, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	return transfer.Deployment{Store: s, Blobs: blobs}
}

// storeCommand runs a command on the store in data and expects its exit code.
func storeCommand(t *testing.T, code int, data string, args ...string) (out, errs string) {
	t.Helper()
	out, errs, got := runIn(t.Context(), "", append([]string{"--data", data, "store"}, args...)...)
	if got != code {
		t.Fatalf("store %v: exit %d, want %d: %s%s", args, got, code, out, errs)
	}
	return out, errs
}
