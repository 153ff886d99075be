package transfer_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// quiet is told and says nothing.
type quiet struct{}

func (quiet) Update(string, ...any) {}
func (quiet) Note(string, ...any)   {}

func TestAnExportIsThereWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "archive")
	if err := os.WriteFile(file, []byte("the last one"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := transfertest.OldData(t)
	d := transfertest.Open(t, old)
	if _, err := transfer.ExportFile(t.Context(), transfer.Deployment{Store: &unreadable{d.Store}, Blobs: d.Blobs}, file, quiet{}); !errors.Is(err, errDead) {
		t.Fatalf("exported with %v", err)
	}
	if err := d.Store.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	left, err2 := os.ReadDir(dir)
	if err := errors.Join(err, err2); err != nil || string(b) != "the last one" || len(left) != 1 {
		t.Errorf("the file holds %q, the directory %v, %v", b, left, err)
	}
	if err := os.WriteFile(file+".part", []byte("what a kill left"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.ExportFile(t.Context(), transfertest.Open(t, old), file, quiet{}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

// unreadable is a store that cannot be read to the end.
type unreadable struct{ store.Store }

func (u *unreadable) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	if id == transfertest.Ended {
		return nil, errDead
	}
	return u.Store.Read(ctx, id, after, limit)
}

// A log that is not whole makes no archive that says it is.
func TestALogWithAGapIsNotExported(t *testing.T) {
	d := transfertest.Open(t, transfertest.OldData(t))
	if _, err := transfer.Export(t.Context(), transfer.Deployment{Store: &gap{d.Store}, Blobs: d.Blobs}, io.Discard, quiet{}); err == nil || !strings.Contains(err.Error(), string(transfertest.Ended)) {
		t.Errorf("exported with %v", err)
	}
}

type gap struct{ store.Store }

func (g *gap) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := g.Store.Read(ctx, id, after, limit)
	return slices.DeleteFunc(events, func(e dormouse.Event) bool { return id == transfertest.Ended && e.Seq == 2 }), err
}
