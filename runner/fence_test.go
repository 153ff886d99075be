package runner_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
)

func TestFenceCorruptedByAPowerCutFencesNobodyOff(t *testing.T) {
	for _, corrupt := range []string{"", `{"session":"sesn_`, "\x00\x00\x00\x00"} {
		name := filepath.Join(t.TempDir(), "fence.json")
		if err := os.WriteFile(name, []byte(corrupt), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := runner.FenceFile(name).Known()
		if err != nil || f != (runner.Fence{}) {
			t.Errorf("of %q is known %+v, %v; want nothing", corrupt, f, err)
		}
	}
}

func TestFenceIsOnlyEverRaised(t *testing.T) {
	kept := runner.FenceFile(filepath.Join(t.TempDir(), "fence.json"))
	at := func(generation, epoch uint64) runner.Fence {
		return runner.Fence{Session: "sesn_a", Generation: generation, Epoch: epoch}
	}
	for _, step := range []struct {
		fence runner.Fence
		stale bool
	}{
		{at(1, 3), false},
		{at(1, 2), true},
		{at(1, 3), false},
		{at(1, math.MaxUint64), false},
		{at(1, 4), true},
		{at(2, 1), false}, // another sandbox knows nothing of the epochs of this one
	} {
		if err := kept.Raise(step.fence); errors.Is(err, runner.ErrStale) != step.stale || !step.stale && err != nil {
			t.Errorf("raised to %+v: %v, want stale %v", step.fence, err, step.stale)
		}
	}
	if known, err := kept.Known(); err != nil || known != at(2, 1) {
		t.Errorf("known is %+v, %v", known, err)
	}
}

// An epoch that a database has forgotten is given once more, to another process.
func TestFenceOfAnotherProcessWithTheSameEpochIsStale(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fence.json")
	at := runner.Fence{Session: "sesn_a", Generation: 1, Epoch: 7}
	for kept, stale := range map[string]bool{
		`{"session":"sesn_a","generation":1,"epoch":7,"by":"another"}`: true,
		`{"session":"sesn_a","generation":1,"epoch":7}`:                false, // by a version that did not say
		`{"session":"sesn_a","generation":2,"epoch":7,"by":"another"}`: false,
		`{"session":"sesn_a","generation":1,"epoch":6,"by":"another"}`: false,
	} {
		if err := os.WriteFile(name, []byte(kept), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := runner.FenceFile(name).Raise(at)
			if known, ok := errors.AsType[*runner.StaleError](err); ok != stale || stale && known.Known != at || !stale && err != nil {
				t.Errorf("raised over %s: %v, want stale %v", kept, err, stale)
			}
		}
	}
}
