package atomicfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

func TestWriteReplacesTheWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"a longer text", "short", ""} {
		if err := atomicfile.Write(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("file = %q, %v, want %q", got, err, text)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o640 {
		t.Errorf("mode = %v, want 0640", info.Mode())
	}
	if names := names(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("files = %v, want one", names)
	}
}

func TestTheFileIsOldUntilItIsNew(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "file")
	if err := atomicfile.Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen []string
	var steps []atomicfile.Step
	f := atomicfile.File{Path: path, Perm: 0o600, Temp: temp, After: func(s atomicfile.Step) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		seen, steps = append(seen, string(b)), append(steps, s)
	}}
	if err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"old", "old", "new", "new"}; !slices.Equal(seen, want) {
		t.Errorf("file at each step = %v, want %v", seen, want)
	}
	if want := []atomicfile.Step{atomicfile.Written, atomicfile.Synced, atomicfile.Renamed, atomicfile.Durable}; !slices.Equal(steps, want) {
		t.Errorf("steps = %v, want %v", steps, want)
	}
	if left := names(t, temp); len(left) != 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestAWriteThatCannotFinishLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "by a directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("text"), 0o600); err == nil {
		t.Error("a file replaced a directory")
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("files = %v, want the directory alone", left)
	}
}

func TestADraftHasNoNameUntilItIsCommitted(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	for _, keep := range []bool{false, true} {
		d, err := atomicfile.File{Perm: 0o600, Temp: temp}.Draft()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one ", "two"} {
			if _, err := d.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if got := names(t, dir); len(got) != 0 {
			t.Errorf("files = %v before it is kept", got)
		}
		path := filepath.Join(dir, "file")
		if keep {
			if err := d.Commit(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Drop(); err != nil {
			t.Error(err)
		}
		if left := names(t, temp); len(left) != 0 {
			t.Errorf("temporary files left: %v", left)
		}
		if !keep {
			continue
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "one two" {
			t.Errorf("file = %q, %v", b, err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
