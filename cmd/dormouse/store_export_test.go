package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func TestAnExportGoesToStandardOutput(t *testing.T) {
	old := oldData(t)
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
func TestALostPayloadIsToldAndCostsNothingElse(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	d := openData(t, old)
	var lost []dormouse.Digest
	for _, e := range logOf(t, d, large) {
		if e.Blob != "" {
			lost = append(lost, e.Blob)
		}
	}
	if err := errors.Join(d.blobs.Delete(t.Context(), lost[len(lost)-1]), d.store.Close()); err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(string(lost[1]), "sha256:")
	if err := os.WriteFile(filepath.Join(old, "blobs", "sha256", hex[:2], hex), []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs := storeCommand(t, exitSeeTo, old, "export", file)
	if strings.Count(errs, string(large)+": the payload of event") != 2 || !strings.Contains(out, "2 blobs could not be read") {
		t.Errorf("said %s%s", out, errs)
	}
	storeCommand(t, 0, data, "import", file)
	was, is := contents(t, openData(t, old)), contents(t, openData(t, data))
	if was[large].Log != is[large].Log || len(is) != 6 {
		t.Errorf("%d sessions, the log is %s, was %s", len(is), is[large].Log, was[large].Log)
	}
}

func TestAnExportIsThereWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "archive")
	if err := os.WriteFile(file, []byte("the last one"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := oldData(t)
	d := openData(t, old)
	x := &exporter{from: &deployment{d.data, &unread{d.store}, d.blobs}, progress: newProgress(&safeBuffer{})}
	if _, err := x.export(t.Context(), file, nil); !errors.Is(err, errDead) {
		t.Fatalf("exported with %v", err)
	}
	if err := d.store.Close(); err != nil {
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
	storeCommand(t, 0, old, "export", file)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

// unread is a store that cannot be read to the end.
type unread struct{ store.Store }

func (u *unread) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	if id == ended {
		return nil, errDead
	}
	return u.Store.Read(ctx, id, after, limit)
}

// A log that is not whole makes no archive that says it is.
func TestALogWithAGapIsNotExported(t *testing.T) {
	d := openData(t, oldData(t))
	x := &exporter{from: &deployment{d.data, &gap{d.store}, d.blobs}, progress: newProgress(&safeBuffer{})}
	if _, err := x.export(t.Context(), "-", &safeBuffer{}); err == nil || !strings.Contains(err.Error(), string(ended)) {
		t.Errorf("exported with %v", err)
	}
}

type gap struct{ store.Store }

func (g *gap) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := g.Store.Read(ctx, id, after, limit)
	return slices.DeleteFunc(events, func(e dormouse.Event) bool { return id == ended && e.Seq == 2 }), err
}
