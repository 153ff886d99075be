package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func newRevert() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert SESSION [PROMPT]",
		Short: "Go back to before a prompt, with files and conversation",
		Long: `Have a session go back to before a prompt was taken up: its files become those of the
snapshot before it, and neither the prompt nor what was said since is part of the
conversation any more. Without PROMPT it is the last one that was taken up. "dormouse log"
lists them.

Nothing is lost by it: events stay in the log, where "dormouse log --graph" shows them. But
newer snapshots go, and what ran in the sandbox is ended. A session at work must be
interrupted first.`,
		Example: `  dormouse revert sesn_…
  dormouse revert sesn_… sevt_…`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			line, err := lineOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			var turn step
			if len(args) > 1 {
				turn = line.of(dormouse.EventID(args[1]))
			} else if last, ok := line.last(); ok {
				turn = last
			} else {
				return fmt.Errorf("%s has taken up no prompt that could be reverted", args[0])
			}
			var done rest.Restored
			raw, err := fetching(cmd, args[0], "revert",
				map[string]any{"prompt": turn.Prompt}, &done)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error { return tellReverted(w, line, turn, done) })
		},
	}
	clientFlags(cmd)
	return cmd
}

// tellReverted says what a session went back to.
func tellReverted(w io.Writer, l *line, turn step, done rest.Restored) error {
	when := ""
	for _, s := range l.steps {
		if s.Kind == stepSnapshot && s.Snapshot == done.Snapshot {
			when = ", taken " + ago(s.Time)
		}
	}
	_, err := fmt.Fprintf(w, "%s went back to before %s: %s\nIts files are those of %s%s.\n",
		done.Session, turn.Prompt, oneLine(turn.Text), done.Snapshot, when)
	return err
}
