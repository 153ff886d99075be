// Command faults runs the cases of docs/faults.md, the long ones included, and
// counts them. A case that did not run, or was skipped, has failed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("run", "", "only cases that match, such as B0[1-9] or B33.*429")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-tags", "faults", "-timeout", "20m",
		"-run", "^Test"+prefix(*only), "./e2e")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := newTally(os.Stdout)
	read := t.read(out)
	ended := cmd.Wait()
	cases, failed := t.count()
	fmt.Fprintf(os.Stdout, "faults: cases=%d failed=%d\n", cases, failed)
	switch {
	case read != nil:
		return read
	case failed > 0:
		return fmt.Errorf("%d of %d cases failed", failed, cases)
	case ended != nil:
		return fmt.Errorf("go test: %w", ended)
	case cases == 0:
		return errors.New("no case ran")
	}
	return nil
}

// prefix is what the name of a case begins with.
func prefix(only string) string {
	if only == "" {
		return "B[0-9][0-9]"
	}
	return only
}

// event is one line of "go test -json".
type event struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
}

// result is what became of a test.
type result struct {
	action string
	output strings.Builder
	parts  int // tests inside it
	failed int // of those
}

// tally is what the tests have come to so far.
type tally struct {
	out   io.Writer
	tests map[string]*result
	loose strings.Builder // output that belongs to no test
}

func newTally(out io.Writer) *tally { return &tally{out: out, tests: make(map[string]*result)} }

// read takes the tests as they come.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil { // a failed build speaks for itself
			fmt.Fprintf(t.out, "%s", line)
			continue
		}
		t.take(e)
	}
}

func (t *tally) take(e event) {
	if e.Test == "" {
		if e.Action == "output" || e.Action == "build-output" {
			t.loose.WriteString(e.Output)
		}
		if e.Action == "fail" {
			fmt.Fprint(t.out, t.loose.String())
		}
		return
	}
	r := t.tests[e.Test]
	if r == nil {
		r = new(result)
		t.tests[e.Test] = r
		if outer := t.tests[outerOf(e.Test)]; outer != nil {
			outer.parts++
		}
	}
	switch e.Action {
	case "output":
		r.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		r.action = e.Action
		t.end(e, r)
	}
}

// end tells how a test ended; one that is made of others only if it failed by
// itself.
func (t *tally) end(e event, r *result) {
	if outer := t.tests[outerOf(e.Test)]; outer != nil && r.bad() {
		outer.failed++
	}
	if r.parts > 0 && (!r.bad() || r.failed > 0) {
		return
	}
	took := time.Duration(e.Elapsed * float64(time.Second)).Round(10 * time.Millisecond)
	fmt.Fprintf(t.out, "%-4s %7s  %s\n", e.Action, took, strings.TrimPrefix(e.Test, "Test"))
	if r.bad() {
		fmt.Fprint(t.out, r.output.String())
	}
}

// bad reports whether a test did not do what it is there for.
func (r *result) bad() bool { return r.action != "pass" }

// count counts the cases, and those that failed. A test that is made of others
// counts as them, unless it failed where none of them did.
func (t *tally) count() (cases, failed int) {
	for _, r := range t.tests {
		if r.parts > 0 && (!r.bad() || r.failed > 0) {
			continue
		}
		cases++
		if r.bad() {
			failed++
		}
	}
	return cases, failed
}

// outerOf is the test that a test is a part of, or "".
func outerOf(name string) string {
	at := strings.LastIndexByte(name, '/')
	if at < 0 {
		return ""
	}
	return name[:at]
}
