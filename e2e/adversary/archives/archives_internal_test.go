//go:build linux

package archives

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// All but what takes long, and in as much time as it takes.
func TestNothingEscapes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	cases, escapes, err := Run(t.Context(), time.Minute, t.Output(), regexp.MustCompile("^(tar|blob|image|ref|capture-[^m])"))
	if err != nil || cases < 100 || escapes > 0 {
		t.Errorf("%d of %d cases escaped: %v", escapes, cases, err)
	}
}

// What has the same name cannot be chosen.
func TestEveryCaseHasANameOfItsOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if seen[c.Name] || c.Tries == "" {
			t.Errorf("%s is there twice, or does not say what it tries", c.Name)
		}
		seen[c.Name] = true
	}
}
