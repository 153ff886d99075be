//go:build linux

package gvisor_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

func TestABranchHasASecretOfItsOwn(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	if err := errors.Join(s.Close(), h.Freeze(within(t), s.Handle(), fence(1, 1))); err != nil {
		t.Fatal(err)
	}
	secret := func(dir string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(h.dir, dir, "image", "image.json"))
		if err != nil {
			t.Fatal(err)
		}
		var note struct{ Secret string }
		if err := json.Unmarshal(raw, &note); err != nil || note.Secret == "" {
			t.Fatalf("%s, %v", raw, err)
		}
		return note.Secret
	}
	seen := map[string]bool{secret(filepath.Join("sessions", string(session))): true}
	for _, to := range []dormouse.SessionID{"sesn_b", "sesn_c"} {
		if err := h.Branch(within(t), session, 1, to); err != nil {
			t.Fatal(err)
		}
		if mine := secret(filepath.Join("branches", string(to))); seen[mine] {
			t.Errorf("%s has the secret of another", to)
		} else {
			seen[mine] = true
		}
	}
	// A copy that no session takes is removed, but not at once.
	old := filepath.Join(h.dir, "branches", "sesn_b")
	if err := os.Chtimes(old, time.Now().Add(-24*time.Hour), time.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(within(t), func(id dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Known: id == session} }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old one: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "branches", "sesn_c")); err != nil {
		t.Errorf("one that was just made: %v", err)
	}
}
