// Package attacks plays hostile code inside real sandboxes of a real server and
// checks whether it harms anything but its own session.
package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// Case is one attack. Run returns what was seen, and an error if the sandbox did
// not withstand.
type Case struct {
	Name, Tries string
	Run         func(ctx context.Context, w *World) (seen string, err error)
}

// Cases are all there are.
func Cases() []Case { return slices.Concat(resources(), escapes(), channels(), neighbours()) }

// caseWithin bounds one case.
const caseWithin = 5 * time.Minute

// Run plays the cases that only matches and says of each in one line what it
// tried and what was seen. It returns how many it played, and how many broke out.
func Run(ctx context.Context, w *World, out io.Writer, only *regexp.Regexp) (cases, broke int) {
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
			broke++
		}
		fmt.Fprintf(out, "%-5s %-22s %s: %s (%s)\n", verdict, c.Name, c.Tries, oneLine(seen), time.Since(began).Round(10*time.Millisecond))
	}
	return cases, broke
}

// play runs a case in a session of its own. Whatever it did, the session and its
// neighbour must answer afterwards.
func play(ctx context.Context, w *World, c Case) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, caseWithin)
	defer cancel()
	if err := w.begin(ctx, c.Name); err != nil {
		return "", fmt.Errorf("begin: %w", err)
	}
	defer w.end(context.WithoutCancel(ctx))
	seen, err := c.Run(ctx, w)
	if err != nil {
		return "", err
	}
	return seen, errors.Join(w.Me.answers(ctx), w.Neighbour.answers(ctx))
}
