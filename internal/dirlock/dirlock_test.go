//go:build linux

package dirlock_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/internal/dirlock"
)

func TestOnlyOneHasTheLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := dirlock.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("enough")
	cancel(mine)
	if _, err := dirlock.Lock(late, dir); !errors.Is(err, mine) {
		t.Errorf("a second one was told %v", err)
	}
	unlock()
	unlock, err = dirlock.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestWhatIsNotThereIsNotBroughtBack(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	unlock, err := dirlock.Lock(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if found, err := filepath.Glob(gone); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}
