package mutants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/e2e/chaos/matrix"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// inCases notices by a few cases of the crash matrix.
type inCases struct {
	store string
	cases []matrix.Case
}

func (n inCases) build(ctx context.Context, _ *workshop, dir string, over rig.Overlay) (subject, error) {
	server, err := rig.BuildOver(ctx, dir, over, "crash")
	return subject{server: server}, err
}

func (n inCases) good(_ context.Context, w *workshop) (subject, error) {
	return subject{server: w.server}, nil
}

// How often a point is visited depends on timing: on a machine that has other things
// to do requests are sent twice, and what would be two commits is one. Cases of which
// none was reached are played again, and so are those of a mutant that died somewhere
// else than where it shows.
const (
	maxRounds  = 6 // until a case is reached
	maxReached = 3 // until a mutant is noticed
)

func (n inCases) look(ctx context.Context, w *workshop, s subject) (string, error) {
	reached, need := 0, maxReached
	if s.server == w.server {
		need = 1
	}
	for range maxRounds {
		sum, err := matrix.Run(ctx, matrix.Config{Binary: s.server, Store: n.store, Cases: n.cases, Parallel: 2, Seed: 1, Out: io.Discard})
		if err != nil {
			return "", err
		}
		if text, err := found(sum); text != "" || err != nil {
			return text, err
		}
		if sum.Cases > 0 {
			reached++
		}
		if reached == need {
			return "", nil
		}
	}
	if reached > 0 {
		return "", nil
	}
	return "", fmt.Errorf("none of %d cases was reached in %d rounds", len(n.cases), maxRounds)
}

// found is the first thing that is wrong.
func found(sum matrix.Summary) (text string, err error) {
	for _, o := range sum.Failed {
		_ = os.RemoveAll(filepath.Dir(o.Dir)) // it is expected, or told below
		if o.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", o.Case, o.Err))
			continue
		}
		for _, zero := range oracle.Zeroes() {
			if len(o.Findings[zero]) > 0 && text == "" {
				text = fmt.Sprintf("%s: %s: %s", o.Case, zero, o.Findings[zero][0])
			}
		}
	}
	if text != "" {
		return text, nil
	}
	return "", err
}

// opSent: killed after an op was sent and its sandbox lost, only the record can
// say that it may have happened.
func opSent() []matrix.Case {
	var cases []matrix.Case
	for _, name := range []string{"exec-lost", "task-lost", "write-lost"} {
		k, _ := play.Named(name)
		cases = append(cases, matrix.Case{Kind: k, Arms: []rig.Arm{{Point: crash.OpSent, Visit: 2}}})
	}
	return cases
}

// stale: frozen with an append on its way, a server comes back when another one
// has the session.
func stale() []matrix.Case {
	k, _ := play.Named("stale")
	return []matrix.Case{{Kind: k, Arms: []rig.Arm{{Point: crash.StoreFencing, Visit: 2, Death: crash.Freeze}}}}
}

// commits: killed at every commit of a short turn, one of them falls between the
// two halves.
func commits(name string) []matrix.Case {
	const most = 12
	var cases []matrix.Case
	k, _ := play.Named(name)
	for n := range most {
		cases = append(cases, matrix.Case{Kind: k, Arms: []rig.Arm{{Point: crash.StoreFlushing, Visit: n + 1}}})
	}
	return cases
}
