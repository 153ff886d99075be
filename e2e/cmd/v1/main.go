// Command v1 runs the official SDKs against the built server, through a proxy
// that checks every answer against the official description. It ends with one
// line for each of its sections and fails if a check failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/contract"
	"github.com/dormouse-run/dormouse/e2e/v1/coverage"
	"github.com/dormouse-run/dormouse/e2e/v1/node"
	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "v1:", err)
		os.Exit(1)
	}
}

// runner is one run of all.
type runner struct {
	binary rig.Binary
	work   string // a directory for what is built
	update bool
	seen   *schema.Report
	gaps   []contract.Outcome // what of the SDK's own tests is refused and is of what is served
	last   []string           // the lines that it ends with
}

func run() error {
	binary := flag.String("binary", "bin/dormouse", "the server")
	work := flag.String("work", "bin/v1", "where what is built and installed is kept")
	only := flag.String("section", "", "only this section: go, node or contract; the coverage is not compared then")
	update := flag.Bool("update", false, "write docs/v1-coverage.md and the list of gaps as they are now")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := rig.Beside(*binary)
	if err != nil {
		return err
	}
	r := &runner{binary: b, work: *work, update: *update, seen: schema.NewReport()}
	if err := os.MkdirAll(r.work, 0o755); err != nil {
		return err
	}
	var failed []error
	for _, s := range []struct {
		name string
		play func(context.Context) error
	}{{"go", r.golang}, {"node", r.node}, {"contract", r.contract}, {"coverage", r.coverage}} {
		if *only != "" && s.name != *only {
			continue
		}
		if err := s.play(ctx); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	for _, v := range r.seen.Violations() {
		fmt.Fprintln(os.Stdout, "violation:", v)
	}
	for _, line := range r.last {
		fmt.Fprintln(os.Stdout, line)
	}
	fmt.Fprintln(os.Stdout, r.seen)
	if n := r.seen.Wrong(); n > 0 {
		failed = append(failed, fmt.Errorf("%d violations of the description", n))
	}
	return errors.Join(failed...)
}

// golang runs the tests with both Go SDKs, and all others of e2e/v1, at length.
func (r *runner) golang(ctx context.Context) error {
	path, err := filepath.Abs(filepath.Join(r.work, "report.json"))
	if err != nil {
		return err
	}
	_ = os.Remove(path) // of an earlier run
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "30m", "./e2e/v1", "-every", "-kills", "8")
	cmd.Env = append(os.Environ(), "DORMOUSE_BIN="+r.binary.Server, "DORMOUSE_V1_REPORT="+path)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if report, bad := schema.Read(path); bad == nil {
		r.seen.Add(report)
	} else {
		err = errors.Join(err, bad)
	}
	return err
}

// at opens a site, plays there, and judges what came of it.
func (r *runner) at(ctx context.Context, o site.Options, play func(*site.Site) error) (err error) {
	if o.Binary == (rig.Binary{}) {
		o.Binary = r.binary
	}
	s, err := site.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, s.Tail())
		}
		r.seen.Add(s.Report)
		err = errors.Join(err, s.Close())
	}()
	if err := play(s); err != nil {
		return err
	}
	wrong, _, err := s.Judge(ctx)
	if err == nil && len(wrong) > 0 {
		err = errors.New(strings.Join(wrong, "\n"))
	}
	return err
}

// node plays with both generations of the TypeScript SDK, and has the server
// killed under the requests that have a key.
func (r *runner) node(ctx context.Context) error {
	points, err := rig.Build(ctx, filepath.Join(r.work, "crash"), "crash")
	if err != nil {
		return err
	}
	played, failed := 0, 0
	play := func(s *site.Site, generation, note string, programs ...string) error {
		outcomes, err := node.Play(ctx, generation, filepath.Join(r.work, "node-"+generation), s.Stage("node-"+generation), programs...)
		for _, o := range outcomes {
			fmt.Fprintf(os.Stdout, "node %s%s: %s\n", generation, note, o)
			played++
			if !o.Passed() {
				failed++
			}
		}
		return err
	}
	var errs []error
	for _, generation := range node.Generations() {
		errs = append(errs, r.at(ctx, site.Options{}, func(s *site.Site) error { return play(s, generation, "") }))
		for _, arm := range stage.Untold() {
			errs = append(errs, r.at(ctx, site.Options{Binary: points, Arms: []rig.Arm{arm}}, func(s *site.Site) error {
				err := play(s, generation, ", killed at "+arm.String(), stage.Keys)
				if err == nil && len(s.Died()) == 0 {
					err = fmt.Errorf("the server never came to %s", arm)
				}
				return err
			}))
		}
	}
	r.last = append(r.last, fmt.Sprintf("node: programs=%d failed=%d", played, failed))
	if failed > 0 || played == 0 {
		errs = append(errs, fmt.Errorf("%d of %d programs failed", failed, played))
	}
	return errors.Join(errs...)
}

// contract runs the SDK's own tests.
func (r *runner) contract(ctx context.Context) error {
	program, err := contract.Build(ctx, filepath.Join(r.work, "contract"))
	if err != nil {
		return err
	}
	var all []contract.Outcome
	err = r.at(ctx, site.Options{}, func(s *site.Site) error {
		f, err := contract.NewFixtures(s)
		if err != nil {
			return err
		}
		defer f.Close()
		all, err = contract.Run(ctx, program, f.URL())
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, contract.Gaps(all))
	r.gaps = contract.Refused(all)
	r.last = append(r.last, contract.Summary(all)...)
	if r.update {
		return os.WriteFile("e2e/v1/contract/gaps.txt", []byte(contract.Gaps(all)), 0o600)
	}
	if wrong := contract.Compare(all); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// coverage writes down what of the API is there.
func (r *runner) coverage(ctx context.Context) error {
	spec, err := schema.Load()
	if err != nil {
		return err
	}
	var table coverage.Table
	if err := r.at(ctx, site.Options{}, func(s *site.Site) (err error) {
		table, err = coverage.Take(ctx, spec, r.seen, s)
		return err
	}); err != nil {
		return err
	}
	for _, o := range r.gaps {
		table.Refused = append(table.Refused, coverage.Refusal{Test: o.Test, Why: o.Why})
	}
	r.last = append(r.last, table.Summary())
	const file = "docs/v1-coverage.md"
	if r.update {
		return os.WriteFile(file, []byte(table.Markdown()), 0o600)
	}
	was, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(was) != table.Markdown() {
		return errors.New(file + " is not as it was seen; make v1 ARGS=-update writes it again")
	}
	return nil
}
