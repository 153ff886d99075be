package atomicfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

func TestSweepRemovesWhatTheDeadHaveLeft(t *testing.T) {
	dir := t.TempDir()
	begin := func(age time.Duration) *atomicfile.Draft {
		d, err := atomicfile.File{Path: filepath.Join(dir, "file"), Perm: 0o600}.Draft()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names(t, dir) {
			path := filepath.Join(dir, name)
			if at, err := os.Stat(path); err == nil && time.Since(at.ModTime()) < time.Minute && age > 0 {
				if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return d
	}
	begin(2 * time.Hour) // its process was killed
	begin(30 * time.Minute)
	lives := begin(0)
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); len(left) != 3 || !slices.Contains(left, "old") {
		t.Errorf("there is %v, want a file, and two that may be written to", left)
	}
	if err := lives.Commit(filepath.Join(dir, "file")); err != nil {
		t.Errorf("a live writer: %v", err)
	}
	if err := atomicfile.Sweep(filepath.Join(dir, "nothing")); err != nil {
		t.Error(err)
	}
}
