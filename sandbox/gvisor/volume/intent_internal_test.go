//go:build linux

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A recovery that was killed between keeping what it found and putting the snapshot's
// version back has told of a file that is gone as it was when the files were last synced.
// The next one puts it back.
func TestKilledRecoveryIsFinishedByTheNext(t *testing.T) {
	d, v := newFailing(t)
	must(t, v.clearFailure())
	r := recovery(t)
	r.Snapshot = "snap_1"
	point, done, err := r.Newest(t.Context())
	must(t, err)
	done()
	_, err = d.openAs(v)
	must(t, err)
	must(t, v.CreateWorkspace(t.Context(), sandbox.Workspace{}))
	kept := filepath.Join(v.Upper(0).Host(), "kept")
	note := func(name, since string) layer.Index {
		time.Sleep(20 * time.Millisecond) // a file system has times of its own
		all, err := layer.ScanBaseline(t.Context(), v.Upper(0), layer.Limits{Entries: maxNoted})
		must(t, errors.Join(err, v.Marks(0).Write(name, all, since)))
		return all
	}
	must(t, os.WriteFile(kept, []byte("of the snapshot"), 0o600))
	marked := note("snap_1", "")
	must(t, os.Remove(kept))
	synced := note(syncedMark, "snap_1")
	must(t, os.WriteFile(kept, []byte("found"), 0o600))

	now := &sandbox.Recovered{ID: "one", Session: failing, Condition: sandbox.Cut, Reason: "cut"}
	back := &layer.Recovery{
		Snapshot: point, Upper: beneath.At(v.Upper(0).Host()), AtSnapshot: marked, Synced: synced, Suffix: "T",
		Scratch: filepath.Join(v.workspaceDir(0), "recovering"),
	}
	must(t, v.plan(context.Background(), r, back, now))
	back.Close()
	if len(now.Files) != 1 || now.Files[0].SavedAs != "kept.found-T" {
		t.Fatalf("told is %+v", now)
	}
	must(t, os.Rename(kept, kept+".found-T")) // and here it is killed
	must(t, errors.Join(v.Sync(), d.Close(v), v.recordCondition(sandbox.Cut, "cut")))

	told, err := d.Recover(t.Context(), r)
	if err != nil || told == nil || !slices.Equal(told.Files, []layer.Restored{{Path: "kept", SavedAs: "kept.found-T"}}) {
		t.Fatalf("recovered is %+v, %v", told, err)
	}
	_, err = d.openAs(v)
	must(t, err)
	defer func() { must(t, d.Close(v)) }()
	for name, want := range map[string]string{kept: "of the snapshot", kept + ".found-T": "found"} {
		if raw, err := os.ReadFile(name); err != nil || string(raw) != want {
			t.Errorf("%s holds %q, %v", filepath.Base(name), raw, err)
		}
	}
	if _, err := os.Stat(v.intentNote()); err == nil {
		t.Error("what was begun is not forgotten")
	}
}
