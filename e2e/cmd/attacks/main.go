// Command attacks plays hostile code inside real sandboxes of a real server, against
// their neighbours and against the server itself, and restores malicious archives. It
// reports of each case what was tried and what was seen, and fails if one broke out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/dormouse-run/dormouse/e2e/adversary/archives"
	"github.com/dormouse-run/dormouse/e2e/adversary/attacks"
	"github.com/dormouse-run/dormouse/e2e/adversary/forgeries"
	"github.com/dormouse-run/dormouse/e2e/adversary/wall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

// section is a kind of attack.
type section struct {
	name, broke string // and what its last line calls those that got through
	cases       []attack
	play        func(ctx context.Context, only *regexp.Regexp) (cases, broke int, err error)
}

// attack is a case as it is listed.
type attack struct{ name, tries string }

func sections(o wall.Options) []section {
	binary := o.Binary
	sandbox := section{name: "sandbox", broke: "broke", play: func(ctx context.Context, only *regexp.Regexp) (int, int, error) {
		return inSandboxes(ctx, binary, only)
	}}
	for _, c := range attacks.Cases() {
		sandbox.cases = append(sandbox.cases, attack{c.Name, c.Tries})
	}
	archive := section{name: "archive", broke: "escapes", play: func(ctx context.Context, only *regexp.Regexp) (int, int, error) {
		cases, escapes, err := archives.Run(ctx, archives.Within, os.Stdout, only)
		if err != nil {
			return cases, escapes, err
		}
		more, through, err := forgeries.Run(ctx, binary, os.Stdout, only)
		return cases + more, escapes + through, err
	}}
	for _, c := range forgeries.Cases() {
		archive.cases = append(archive.cases, attack{c.Name, c.Tries})
	}
	for _, c := range archives.Cases() {
		archive.cases = append(archive.cases, attack{c.Name, c.Tries})
	}
	server := section{name: "wall", broke: "broke", play: func(ctx context.Context, only *regexp.Regexp) (int, int, error) {
		return wall.Run(ctx, o, os.Stdout, only)
	}}
	for _, c := range wall.Cases() {
		server.cases = append(server.cases, attack{c.Name, c.Tries})
	}
	return []section{sandbox, archive, server}
}

// inSandboxes plays the cases that need a server.
func inSandboxes(ctx context.Context, binary string, only *regexp.Regexp) (cases, broke int, err error) {
	w, err := attacks.Open(ctx, binary)
	if err != nil {
		return 0, 0, err
	}
	cases, broke = attacks.Run(ctx, w, os.Stdout, only)
	if broke > 0 {
		fmt.Fprintln(os.Stderr, w.Log())
	}
	return cases, broke, errors.Join(context.Cause(ctx), w.Close())
}

func run() error {
	only := flag.String("run", "", "only cases whose name matches")
	which := flag.String("section", "", "only this section: sandbox, archive or wall")
	var o wall.Options
	flag.StringVar(&o.Binary, "binary", "bin/dormouse", "the server")
	flag.StringVar(&o.Impostor, "impostor", "", "of the wall: the program that is put into sandboxes; built if not given")
	flag.IntVar(&o.Sample, "sample", 0, "of the wall: how many cases are chosen, with each kind of file and each occasion in one; all if 0")
	flag.Float64Var(&o.Slow, "slow", 1, "of the wall: what every bound of time is multiplied by")
	list := flag.Bool("list", false, "name the cases and stop")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	chosen := slices.DeleteFunc(sections(o), func(s section) bool { return *which != "" && s.name != *which })
	if len(chosen) == 0 {
		return fmt.Errorf("-section: there is no %q", *which)
	}
	chosen = slices.DeleteFunc(chosen, func(s section) bool {
		return !slices.ContainsFunc(s.cases, func(c attack) bool { return pattern.MatchString(c.name) })
	})
	if len(chosen) == 0 {
		return errors.New("no case has such a name")
	}
	if *list {
		for _, s := range chosen {
			for _, c := range s.cases {
				fmt.Fprintf(os.Stdout, "%-8s %-36s %s\n", s.name, c.name, c.tries)
			}
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return play(ctx, chosen, pattern, os.Stdout)
}

// play plays sections and ends with one line of each.
func play(ctx context.Context, all []section, only *regexp.Regexp, out io.Writer) error {
	var failed []error
	var last strings.Builder
	for _, s := range all {
		cases, broke, err := s.play(ctx, only)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		case broke > 0:
			failed = append(failed, fmt.Errorf("%s: %d of %d cases broke out", s.name, broke, cases))
		case cases == 0:
			failed = append(failed, fmt.Errorf("%s: no case ran", s.name))
		}
		fmt.Fprintf(&last, "%s: cases=%d %s=%d\n", s.name, cases, s.broke, broke)
	}
	fmt.Fprint(out, last.String())
	return errors.Join(failed...)
}
