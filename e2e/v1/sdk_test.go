package v1_test

import (
	"testing"

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
