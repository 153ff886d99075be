package v1_test

import (
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/sdk1"
	"github.com/dormouse-run/dormouse/e2e/v1/sdk2"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

func TestGoSDKOfThisGeneration(t *testing.T) { play(t, "go2", sdk2.Programs()) }

func TestGoSDKOfTheGenerationBefore(t *testing.T) { play(t, "go1", sdk1.Programs()) }

// play runs programs at one server, a few at a time.
func play(t *testing.T, who string, programs []stage.Program) {
	t.Helper()
	t.Parallel()
	s, ctx := open(t, site.Options{})
	t.Run("programs", func(t *testing.T) {
		for _, p := range programs {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				if err := p.Run(ctx, s.Stage(who+" "+p.Name)); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestWhatHasAKeyIsTakenOnce kills the server when a session is made, and when a
// message is in the log, before the response is sent. The SDK retries by itself.
func TestWhatHasAKeyIsTakenOnce(t *testing.T) {
	t.Parallel()
	binary, err := withPoints()
	if err != nil {
		t.Fatal(err)
	}
	for who, programs := range map[string][]stage.Program{"go1": sdk1.Programs(), "go2": sdk2.Programs()} {
		i := slices.IndexFunc(programs, func(p stage.Program) bool { return p.Name == stage.Keys })
		if i < 0 {
			t.Fatalf("%s has no program %q", who, stage.Keys)
		}
		for _, arm := range stage.Untold() {
			t.Run(who+" "+arm.String(), func(t *testing.T) {
				t.Parallel()
				s, ctx := open(t, site.Options{Binary: binary, Arms: []rig.Arm{arm}})
				if err := programs[i].Run(ctx, s.Stage(who)); err != nil {
					t.Error(err)
				}
				if len(s.Died()) == 0 {
					t.Errorf("the server never came to %s", arm)
				}
			})
		}
	}
}
