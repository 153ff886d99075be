package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/store/sqlite"
)

func TestSchemaIsReadWithoutChangingAnything(t *testing.T) {
	dir := t.TempDir()
	at, newest, err := sqlite.Schema(t.Context(), dir)
	if at != 0 || newest < 1 || err != nil {
		t.Errorf("of no database: step %d of %d, %v", at, newest, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("looking left %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dormouse.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if at, _, err := sqlite.Schema(t.Context(), dir); at != 0 || err != nil {
		t.Errorf("of a file that was only begun: step %d, %v", at, err)
	}
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"in use", "closed"} {
		if at, _, err := sqlite.Schema(t.Context(), dir); at != newest || err != nil {
			t.Errorf("%s: step %d of %d, %v", when, at, newest, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "dormouse.db"), []byte("something else, and long enough to be looked at"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sqlite.Schema(t.Context(), dir); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a file that is no database: %v", err)
	}
}
