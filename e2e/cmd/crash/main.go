// Command crash kills the real server: at every named instant, one case at a time (-mode
// matrix), or at random under load (-mode storm), or while sandboxes hibernate and wake
// (-mode naps), or for a long time while it measures whether anything grows (-mode
// soak). It freezes a server where it works on sandboxes, beside another server (-mode
// freezes). It also breaks the server on purpose, to show that the tests detect it
// (-mode mutants).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/e2e/chaos/hibernation"
	"github.com/dormouse-run/dormouse/e2e/chaos/matrix"
	"github.com/dormouse-run/dormouse/e2e/chaos/monkey"
	"github.com/dormouse-run/dormouse/e2e/chaos/mutants"
	"github.com/dormouse-run/dormouse/e2e/chaos/soak"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

// enough is how many cases a full run must count, by the kind of sandboxes.
var enough = map[string]int{"local": 1000, rig.GVisor: 300}

func run() error {
	var c matrix.Config
	var bin, mode string
	var runs, servers int
	hibernates := hibernation.Config{Out: os.Stdout}
	flag.StringVar(&mode, "mode", "matrix", "matrix, freezes, storm, naps, soak or mutants")
	flag.StringVar(&bin, "bin", "bin/crash/dormouse", "server built with -tags crash; naps and soak take any")
	flag.StringVar(&c.Store, "store", "sqlite", "which store: sqlite or postgres")
	flag.StringVar(&c.Sandbox, "sandbox", "local", "which sandboxes: local or gvisor")
	flag.StringVar(&c.Past, "past", "", "packed data directory of another version that every case begins with, such as e2e/testdata/upgrade/6333ee6/sqlite/data.tar.gz")
	flag.IntVar(&c.Limit, "limit", 1400, "most cases of a full matrix")
	flag.IntVar(&c.Sample, "sample", 0, "cases of the matrix, spread evenly; all if 0")
	flag.StringVar(&c.Point, "point", "", "only this point, or these as point#visit,point#visit")
	flag.StringVar(&c.Kind, "kind", "", "only this kind of work, or this case of the freezes, or this mutant")
	flag.IntVar(&c.Visit, "visit", 1, "which visit of -point")
	flag.IntVar(&c.Parallel, "parallel", 4, "cases at once")
	flag.Uint64Var(&c.Seed, "seed", 1, "decides what is picked and when")
	flag.IntVar(&runs, "runs", 20, "strikes of a chaos test")
	flag.IntVar(&servers, "servers", 1, "servers of a chaos test, which share a store")
	flag.IntVar(&hibernates.Sessions, "sessions", 100, "sessions that hibernate, or soak")
	flag.IntVar(&hibernates.Awake, "awake", 10, "how many of them are awake at once; of a soak, at most")
	flag.DurationVar(&hibernates.For, "for", 10*time.Minute, "how long they hibernate, or soak")
	flag.BoolVar(&c.Verbose, "v", false, "a line for each case")
	flag.BoolVar(&c.Keep, "keep", false, "keep the directories of good cases")
	flag.Parse()
	c.Out = os.Stdout
	only := "" // a soak is of both stores, unless one is named
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "store" {
			only = c.Store
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if c.Binary, err = rig.Beside(bin); err != nil {
		return err
	}
	if enough[c.Sandbox] == 0 {
		return fmt.Errorf("there are no sandboxes %q; there are local and gvisor", c.Sandbox)
	}
	switch mode {
	case "matrix":
		return runMatrix(ctx, c)
	case "freezes":
		return runFreezes(ctx, c)
	case "mutants":
		return mutants.Run(ctx, c.Binary, c.Kind, os.Stdout)
	case "naps":
		hibernates.Binary, hibernates.Seed, hibernates.Verbose = c.Binary, c.Seed, c.Verbose
		return runHibernation(ctx, hibernates)
	case "soak":
		return runSoak(ctx, soak.Config{
			Binary: c.Binary, Store: only, Seed: c.Seed, Sessions: hibernates.Sessions, Awake: hibernates.Awake, For: hibernates.For, Out: os.Stdout,
		})
	case "storm":
		return runChaos(ctx, monkey.Config{
			Binary: c.Binary, Store: c.Store, Servers: servers, Seed: c.Seed, Runs: runs, Sessions: sessions, Verbose: c.Verbose, Out: os.Stdout,
		})
	}
	return fmt.Errorf("there is no mode %q", mode)
}

// sessions is how many work at once in a chaos test.
const sessions = 20

func runChaos(ctx context.Context, c monkey.Config) error {
	s, err := monkey.Run(ctx, c)
	if err != nil {
		return fmt.Errorf("seed %d, kept in %s: %w", c.Seed, s.Dir, err)
	}
	if !s.OK() {
		fmt.Fprint(os.Stdout, s.Findings)
		err = fmt.Errorf("seed %d, kept in %s", c.Seed, s.Dir)
	}
	fmt.Fprintln(os.Stdout, s)
	return err
}

func runHibernation(ctx context.Context, c hibernation.Config) error {
	s, err := hibernation.Run(ctx, c)
	if err != nil || !s.OK() {
		fmt.Fprint(os.Stdout, s.Wrong())
		err = errors.Join(fmt.Errorf("seed %d, kept in %s", c.Seed, s.Dir), err)
	}
	fmt.Fprintln(os.Stdout, s)
	return err
}

func runFreezes(ctx context.Context, c matrix.Config) error {
	cases := matrix.Freezes(c.Sandbox, c.Kind)
	c.Point, c.Kind, c.Verbose = "", "", true
	if len(cases) == 0 {
		return errors.New("there is no such case")
	}
	s, err := matrix.RunFreezes(ctx, c, cases)
	if err != nil {
		return err
	}
	for _, u := range s.Unreached {
		err = errors.Join(err, fmt.Errorf("%s was not frozen where it was told", u))
	}
	if len(s.Failed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d cases failed", len(s.Failed)))
	}
	fmt.Fprintf(os.Stdout, "freezes: cases=%d %s\n", s.Cases, oracle.Counts(s.Counts))
	return err
}

func runSoak(ctx context.Context, c soak.Config) error {
	s, err := soak.Run(ctx, c)
	fmt.Fprint(os.Stdout, s.Wrong())
	if s.Dir != "" {
		err = errors.Join(fmt.Errorf("seed %d, kept in %s", c.Seed, s.Dir), err)
	}
	fmt.Fprintln(os.Stdout, s)
	return err
}

func runMatrix(ctx context.Context, c matrix.Config) error {
	s, err := matrix.Run(ctx, c)
	if err != nil {
		return err
	}
	picked := c.Point != "" || c.Kind != ""
	var errs []error
	if len(s.Failed) > 0 {
		errs = append(errs, fmt.Errorf("%d cases failed", len(s.Failed)))
	}
	if c.Verbose {
		for _, u := range s.Unreached {
			fmt.Fprintln(os.Stdout, "not reached:", u)
		}
	}
	if !picked && len(s.NeverHit) > 0 {
		errs = append(errs, fmt.Errorf("nothing died at %v", s.NeverHit))
	}
	if !picked && c.Sample == 0 && s.Cases < enough[c.Sandbox] {
		errs = append(errs, fmt.Errorf("only %d cases were counted, not %d", s.Cases, enough[c.Sandbox]))
	}
	fmt.Fprintln(os.Stdout, s)
	return errors.Join(errs...)
}
