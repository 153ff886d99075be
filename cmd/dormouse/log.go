package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
)

func newLog() *cobra.Command {
	var graph bool
	cmd := &cobra.Command{
		Use:   "log SESSION",
		Short: "Show a session's line: prompts and snapshots, newest first",
		Long: `Show what a session was asked and the snapshots of its files, newest first: o is a turn
with its prompt, * a snapshot, < where the session went back to one or branched from it.

With --graph what is no part of the line any more is shown beside it, marked with x:
prompts and snapshots that were reverted, and snapshots that were deleted.`,
		Example: `  dormouse log sesn_…
  dormouse log sesn_… --graph
  dormouse log sesn_… --json | jq -r '.line[] | select(.kind == "turn") | .text'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			past, err := readHistory(cmd.Context(), c, dormouse.SessionID(args[0]))
			if err != nil {
				return err
			}
			steps := past.shown(graph)
			raw, err := json.Marshal(struct {
				Line []step `json:"line"`
			}{steps})
			if err != nil {
				return err
			}
			return printed(cmd, append(raw, '\n'), func(w io.Writer) error { return draw(w, steps) })
		},
	}
	clientFlags(cmd)
	cmd.Flags().BoolVar(&graph, "graph", false, "also what was reverted or deleted")
	return cmd
}

// shown is the steps to show, the newest first.
func (l *history) shown(graph bool) []step {
	steps := []step{}
	for _, s := range slices.Backward(l.steps) {
		if graph || !s.Reverted && !s.Deleted {
			steps = append(steps, s)
		}
	}
	return steps
}

// draw shows steps, the newest first. What was reverted stands one further to the
// right for each time it was, and joins the history where the session went back to.
func draw(out io.Writer, steps []step) error {
	const gap = 2
	var names, ages []string
	var name, age int // how wide they are
	for _, s := range steps {
		names = append(names, strings.Repeat("| ", len(s.within))+s.mark()+" "+s.name())
		ages = append(ages, ago(s.Time))
		name, age = max(name, len(names[len(names)-1])+gap), max(age, len(ages[len(ages)-1])+gap)
	}
	var b strings.Builder
	var before []int
	for i, s := range steps {
		common := 0
		for common < len(before) && common < len(s.within) && before[common] == s.within[common] {
			common++
		}
		for level := len(before); level > common; level-- {
			b.WriteString(strings.Repeat("| ", level-1) + "|/\n")
		}
		fmt.Fprintf(&b, "%-*s%-*s%s\n", name, names[i], age, ages[i], s.words())
		before = s.within
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// mark says of what kind a step is.
func (s step) mark() string {
	switch {
	case s.Reverted && !s.Replaced || s.Deleted:
		return "x"
	case s.Kind == stepSnapshot:
		return "*"
	case s.Kind == stepTurn || s.Kind == stepCopied:
		return "o"
	}
	return "<"
}

// words is what there is to say of a step.
func (s step) words() string {
	words := oneLine(s.Text)
	switch s.Kind {
	case stepSnapshot:
		words = s.Reason
		if s.Midway {
			words += ", during a turn"
		}
		words += ", " + size(s.Bytes)
		if s.Label != "" {
			words += ", " + oneLine(s.Label)
		}
	case stepRestored:
		words = "went back to its files"
	case stepReverted:
		if words = "went back to it"; s.Snapshot == "" {
			words = "went back to no files"
		}
	case stepBranched:
		words = "branched from it"
	}
	if s.Origin != "" {
		words += ", of " + string(s.Origin)
	}
	if s.Outcome != "" {
		words += " (" + s.Outcome + ")"
	}
	switch {
	case s.Replaced && !s.Deleted:
		return words + " (replaced, kept)"
	case s.Reverted:
		return words + " (reverted)"
	case s.Deleted:
		return words + " (deleted)"
	case s.Newest:
		return words + " (newest)"
	}
	return words
}

// name is what the other commands call it.
func (s step) name() string {
	if s.Prompt != "" {
		return string(s.Prompt)
	}
	return string(s.Snapshot)
}
