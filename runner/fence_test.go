package runner_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
)

func TestFenceTornByAPowerCutHoldsNobodyOff(t *testing.T) {
	for _, torn := range []string{"", `{"session":"sesn_`, "\x00\x00\x00\x00"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "fence.json"), []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := runner.KnownFence(dir)
		if err != nil || f != (runner.Fence{}) {
			t.Errorf("of %q is known %+v, %v; want nothing", torn, f, err)
		}
	}
}
