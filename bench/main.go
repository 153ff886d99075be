// Package main is the bench: it measures the built binary, from outside, and
// real alternatives in the same run, alternating between them. Its output is
// first of all ratios, because those are comparable between machines, and
// beside them the floors of this machine: what its disk takes to sync and its
// kernel to start a program.
//
// Every number with a target is compared with it, and a missed target fails the
// run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run: what is measured, where, and what came of it.
type bench struct {
	binary   string // the server, as built
	before   string // another server; empty for none
	dir      string // where everything of this run is kept
	opencode string // where opencode is installed
	work     float64
	out      io.Writer
	floors   floors
	lines    []line
}

// parts are the measurements, in order. Each stands alone.
var parts = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"append", (*bench).appends},
	{"open", (*bench).opens},
	{"fanout", (*bench).fanout},
	{"turn", (*bench).turns},
	{"start", (*bench).starts},
	{"fleet", (*bench).fleets},
	{"sandbox", (*bench).sandboxes},
	{"versions", (*bench).versions},
	{"snapshot", (*bench).snapshots},
	{"scan", (*bench).scans},
	{"v1-turn", (*bench).v1Turns},
	{"v1-crowd", (*bench).v1Crowd},
	{"v1-rate", (*bench).v1Rates},
}

var errMissed = errors.New("a target was missed")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	binary := flags.String("binary", "bin/dormouse", "the server to measure")
	before := flags.String("before", "", "another server, such as that of an older version, to measure this one beside: the part versions")
	dir := flags.String("dir", "", "directory to work in, on the file system to measure; the system's for temporary files if empty")
	only := flags.String("run", "", "measure only the parts that match this regular expression: append, open, fanout, turn, start, fleet, sandbox, versions, snapshot, scan, v1-turn, v1-crowd, v1-rate")
	file := flags.String("json", filepath.Join(os.TempDir(), "dormouse-bench.json"), "file to write the numbers to")
	noFail := flags.Bool("no-fail", false, "report missed targets and succeed")
	work := flags.Float64("work", 1, "how much to do of what is repeated; less is faster and noisier")
	dsn := flags.String("append", "", "append to the PostgreSQL at this URL when told to instead; the bench starts it itself")
	name := flags.String("append-as", "", "the name of a server that appends")
	sessions := flags.Int("append-sessions", 0, "how many sessions a server that appends has")
	bare := flags.String("bare", "", "serve the bare fan-out on this address instead; the bench starts it itself")
	opencode := flags.String("opencode", "bin/opencode-"+opencodeVersion, "where opencode is installed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *bare != "" {
		return serveBare(ctx, *bare)
	}
	if *dsn != "" {
		return serveAppends(ctx, *dsn, *name, *sessions, os.Stdin, out)
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	b := &bench{opencode: *opencode, before: *before, work: *work, out: out}
	if b.binary, err = filepath.Abs(*binary); err != nil {
		return err
	}
	if _, err := os.Stat(b.binary); err != nil {
		return fmt.Errorf("%w; run make build first", err)
	}
	if b.dir, err = os.MkdirTemp(*dir, "dormouse-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endStrays(b.dir), os.RemoveAll(b.dir)) }()

	if err := b.measureFloors(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if !chosen.MatchString(p.name) {
			continue
		}
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("measure %s: %w", p.name, err)
		}
	}
	if err := b.write(*file); err != nil {
		return err
	}
	missed := b.summarise(*file)
	if missed > 0 && !*noFail {
		return errMissed
	}
	return nil
}

// times scales a number of repetitions.
func (b *bench) times(n int) int { return max(1, int(float64(n)*b.work)) }

// space makes a directory of its own for one measurement.
func (b *bench) space(name string) (string, error) {
	return os.MkdirTemp(b.dir, name+"-")
}

// patience bounds every wait for something that has to happen.
const patience = time.Minute
