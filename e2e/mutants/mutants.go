// Package mutants breaks the server on purpose, one rule at a time, and fails if
// the crash tests would not notice.
package mutants

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/e2e/matrix"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/e2e/play"
	"github.com/dormouse-run/dormouse/e2e/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// mutant is one broken rule and the smallest thing that must notice it.
type mutant struct {
	tag  string
	rule string
	// notice returns what it found wrong with a build; nothing is the right answer
	// for the build that is not broken.
	notice func(context.Context, rig.Binary) (string, error)
}

func all() []mutant {
	return []mutant{
		{"mutant_op_late", "an op is recorded before any byte of it leaves", noticeCases("sqlite", opLate())},
		{"mutant_split_end", "prompt-done and turn-end are one transaction", noticeCases("sqlite", commits("model-whole"))},
		{"mutant_split_wakeup", "a wake-up and the prompt it brings are one transaction", noticeCases("sqlite", commits("wakeup"))},
		{"mutant_postgres_no_epoch", "an append under an epoch that is over is refused", noticeCases("postgres", stale())},
		{"mutant_runner_no_epoch", "a runner refuses an epoch older than one it has met", noticeStaleServer},
	}
}

// opLate: killed after an op was sent and its sandbox lost, only the record can
// say that it may have happened.
func opLate() []matrix.Case {
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

func noticeCases(store string, cases []matrix.Case) func(context.Context, rig.Binary) (string, error) {
	return func(ctx context.Context, b rig.Binary) (string, error) {
		s, err := matrix.Run(ctx, matrix.Config{Binary: b, Store: store, Cases: cases, Parallel: 2, Seed: 1, Out: io.Discard})
		if err != nil {
			return "", err
		}
		if s.Cases == 0 && len(s.Failed) == 0 {
			return "", fmt.Errorf("none of %d cases was reached", len(cases))
		}
		for _, o := range s.Failed {
			if o.Err != nil {
				return "", fmt.Errorf("%s: %w", o.Case, o.Err)
			}
			_ = os.RemoveAll(filepath.Dir(o.Dir)) // it is expected, or told below
			for _, zero := range oracle.Zeroes() {
				if len(o.Findings[zero]) > 0 {
					return fmt.Sprintf("%s: %s: %s", o.Case, zero, o.Findings[zero][0]), nil
				}
			}
		}
		return "", nil
	}
}

// Run builds every mutant and reports on out. It fails if one is not noticed, or
// if the build that is not broken is.
func Run(ctx context.Context, good rig.Binary, out io.Writer) error {
	dir, err := os.MkdirTemp("", "dormouse-mutants-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	caught, missed := 0, 0
	for _, m := range all() {
		found, err := m.notice(ctx, good)
		if err != nil {
			return fmt.Errorf("%s, not broken: %w", m.tag, err)
		}
		if found != "" {
			return fmt.Errorf("%s: the build that is not broken fails the same test: %s", m.tag, found)
		}
		broken, err := rig.Build(ctx, filepath.Join(dir, m.tag), "crash", m.tag)
		if err != nil {
			return err
		}
		if found, err = m.notice(ctx, broken); err != nil {
			return fmt.Errorf("%s: %w", m.tag, err)
		}
		if found == "" {
			missed++
			fmt.Fprintf(out, "%s was NOT noticed: %s\n", m.tag, m.rule)
			continue
		}
		caught++
		fmt.Fprintf(out, "%s was noticed: %s\n", m.tag, found)
	}
	fmt.Fprintf(out, "mutants: caught=%d missed=%d\n", caught, missed)
	if missed > 0 {
		return fmt.Errorf("%d mutants were not noticed", missed)
	}
	return nil
}
