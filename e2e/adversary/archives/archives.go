//go:build linux

// Package archives restores malicious archives, takes snapshots of malicious
// workspaces, and checks that nothing but the target directory is touched. No
// server is needed: a server restores a snapshot with the packages that are
// tested here.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Case is one attack. Run returns what was seen, and an error if it got through.
type Case struct {
	Name, Tries string
	Run         func(ctx context.Context, w *World) (seen string, err error)
}

// Cases are all there are.
func Cases() []Case { return slices.Concat(tars(), blobs(), images(), refs(), snapshots()) }

// caseWithin bounds one case together with what it takes to prepare it.
const caseWithin = 2 * time.Minute

// Run plays the cases that only matches and says of each in one line what it
// tried and what was seen. An attempt that takes longer than within has escaped.
// It returns how many it played, and how many escaped.
func Run(ctx context.Context, within time.Duration, out io.Writer, only *regexp.Regexp) (cases, escapes int, err error) {
	w, err := Open(within)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range Cases() {
		if !only.MatchString(c.Name) || ctx.Err() != nil {
			continue
		}
		cases++
		began := time.Now()
		seen, err := play(ctx, w, c)
		verdict := "held"
		if err != nil {
			verdict, seen = "BROKE", err.Error()
			escapes++
		}
		fmt.Fprintf(out, "%-5s %-36s %s: %s (%s)\n", verdict, c.Name, c.Tries, oneLine(seen), time.Since(began).Round(time.Millisecond))
	}
	return cases, escapes, errors.Join(context.Cause(ctx), w.Close())
}

// play runs a case. Whatever it did, what is not its own is as it was.
func play(ctx context.Context, w *World, c Case) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, caseWithin)
	defer cancel()
	before, err := w.look()
	if err != nil {
		return "", err
	}
	seen, err := c.Run(ctx, w)
	after, failed := w.look()
	if before != after {
		failed = errors.Join(failed, fmt.Errorf("something else was touched: %s", difference(before, after)))
	}
	return seen, errors.Join(err, failed)
}

// named makes cases of what has names.
func named[T any](kind, tries string, all map[string]T, run func(context.Context, *World, T) (string, error)) []Case {
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
		cases = append(cases, Case{kind + "-" + words, tries, func(ctx context.Context, w *World) (string, error) { return run(ctx, w, all[name]) }})
	}
	return cases
}

// oneLine makes one short line of text.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 200
	if len(text) > most {
		text = text[:most/2] + " … " + text[len(text)-most/2:]
	}
	return strings.ToValidUTF8(text, "?")
}

// difference shows the lines that only one of two has.
func difference(before, after string) string {
	var b strings.Builder
	for line := range strings.Lines(before) {
		if !strings.Contains(after, line) {
			b.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}
