package forgeries

import (
	"os"
	"regexp"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestNothingGetsThrough(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	built, err := rig.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cases, through, err := Run(t.Context(), built.Server, t.Output(), regexp.MustCompile(""))
	if err != nil || cases < 50 || through > 0 {
		t.Errorf("%d of %d cases got through: %v", through, cases, err)
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
