// Package mutants breaks the server on purpose, one rule at a time, and fails if the
// tests do not detect it. A mutant is a patch of the sources that is applied only to a
// build of its own: nothing in the sources says how to break them.
package mutants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// mutant is one broken rule and the smallest thing that must notice it.
type mutant struct {
	name    string
	rule    string
	patches []patch
	notice  notice
}

// built is a mutant that is ready to be looked at, and what it is compared with.
type built struct {
	mutant
	broken, good subject
	err          error
}

// Run builds every mutant, or the one that is named, and reports on out. It fails
// if one is not noticed, or if the build that is not broken is.
func Run(ctx context.Context, good rig.Binary, only string, out io.Writer) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(root, only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dormouse-mutants-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w := &workshop{root: root, dir: dir, server: good, tests: make(map[string]string)}
	ctx, cancel := context.WithCancel(ctx)
	ready := w.buildAll(ctx, chosen)
	defer func() {
		cancel()
		for range ready { // until its goroutine has ended
		}
	}()
	caught, missed := 0, 0
	for b := range ready {
		begin := time.Now()
		text, err := w.look(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		how := "was noticed"
		if text == "" {
			missed++
			how, text = "was NOT noticed", b.rule
		} else {
			caught++
		}
		fmt.Fprintf(out, "%d/%d %s %s: %s (%s)\n", caught+missed, len(chosen), b.name, how, short(text), time.Since(begin).Round(time.Second))
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "mutants: caught=%d missed=%d\n", caught, missed)
	if missed > 0 {
		return fmt.Errorf("%d mutants were not noticed", missed)
	}
	return nil
}

// choose returns the mutants to be built. All patches must fit, whichever is meant.
func choose(root, only string) ([]mutant, error) {
	var chosen []mutant
	var errs []error
	for _, m := range all() {
		if _, err := sources(root, m.patches); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		if only == "" || only == m.name {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		errs = append(errs, fmt.Errorf("there is no mutant %q", only))
	}
	return chosen, errors.Join(errs...)
}

// buildAll builds mutants one after the other, the next one while the one before is
// looked at.
func (w *workshop) buildAll(ctx context.Context, chosen []mutant) <-chan built {
	ready := make(chan built)
	go func() {
		defer close(ready)
		for _, m := range chosen {
			b := built{mutant: m}
			b.broken, b.good, b.err = w.build(ctx, m)
			select {
			case ready <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ready
}

func (w *workshop) build(ctx context.Context, m mutant) (broken, good subject, err error) {
	dir := filepath.Join(w.dir, m.name)
	over, err := overlay(w.root, dir, m.patches)
	if err != nil {
		return broken, good, err
	}
	if good, err = m.notice.good(ctx, w); err != nil {
		return broken, good, err
	}
	broken, err = m.notice.build(ctx, w, dir, over)
	return broken, good, err
}

// look returns what is wrong with a mutant but not with the server that it was made from.
func (w *workshop) look(ctx context.Context, b built) (string, error) {
	defer func() { _ = os.RemoveAll(filepath.Join(w.dir, b.name)) }()
	if b.err != nil {
		return "", b.err
	}
	text, err := b.notice.look(ctx, w, b.good)
	if err != nil {
		return "", fmt.Errorf("not broken: %w", err)
	}
	if text != "" {
		return "", fmt.Errorf("the build that is not broken fails the same test: %s", text)
	}
	return b.notice.look(ctx, w, b.broken)
}

// short makes one line of what was found.
func short(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
