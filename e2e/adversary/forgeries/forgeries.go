// Package forgeries tries to use snapshots without the right to, over a real server: by
// refs and ids that were made up, that belong to others or that were valid once. It
// also compares branches with each other for what no two may share.
package forgeries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Case is one attempt of an attacker.
type Case struct {
	Name, Tries string
	// Run tries it, and says what was seen. An error means that it got through.
	Run func(ctx context.Context, w *World) (seen string, err error)
}

// Cases lists them all.
func Cases() []Case {
	return slices.Concat(ids(), refs(), rights(), branches())
}

// caseWithin bounds one case together with what it takes to prepare it.
const caseWithin = 2 * time.Minute

// Run plays the cases that only matches and says of each in one line what it tried
// and what was seen. It returns how many it played, and how many got through.
func Run(ctx context.Context, binary string, out io.Writer, only *regexp.Regexp) (cases, through int, err error) {
	chosen := slices.DeleteFunc(Cases(), func(c Case) bool { return !only.MatchString(c.Name) })
	if len(chosen) == 0 {
		return 0, 0, nil
	}
	w, err := Open(ctx, binary)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range chosen {
		if ctx.Err() != nil {
			break
		}
		cases++
		began := time.Now()
		seen, err := play(ctx, w, c)
		verdict := "held"
		if err != nil {
			verdict, seen = "BROKE", err.Error()
			through++
		}
		fmt.Fprintf(out, "%-5s %-36s %s: %s (%s)\n", verdict, c.Name, c.Tries, oneLine(seen), time.Since(began).Round(time.Millisecond))
	}
	return cases, through, errors.Join(context.Cause(ctx), w.Close())
}

// play runs a case. Afterwards both sessions must have their files and their snapshots.
func play(ctx context.Context, w *World, c Case) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, caseWithin)
	defer cancel()
	before, err := w.look(ctx)
	if err != nil {
		return "", err
	}
	seen, err := c.Run(ctx, w)
	after, failed := w.look(ctx)
	if before != after && failed == nil {
		failed = fmt.Errorf("what was %q is %q", before, after)
	}
	return seen, errors.Join(err, failed)
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
