package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newRevert() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "revert SESSION [PROMPT]",
		Short: "Go back to before a prompt, with files and conversation",
		Long: `Have a session go back to before a prompt was taken up: its files become those of the
snapshot before it, and neither the prompt nor what was said since is part of the
conversation any more. Without PROMPT it is the last one that was taken up. "dormouse log"
lists them.

Nothing is lost by it: events stay in the log, where "dormouse log --graph" shows them, and
the files that were there are kept in a snapshot, which it names. But other newer snapshots
go, and what ran in the sandbox is ended. A session at work must be interrupted first.
With --discard no snapshot is taken of the files that were there.`,
		Example: `  dormouse revert sesn_…
  dormouse revert sesn_… sevt_…`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := dormouse.SessionID(args[0])
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			past, err := readHistory(cmd.Context(), c, id)
			if err != nil {
				return err
			}
			var turn step
			if len(args) > 1 {
				turn = past.of(dormouse.EventID(args[1]))
			} else if last, ok := past.last(); ok {
				turn = last
			} else {
				return fmt.Errorf("%s has taken up no prompt that could be reverted", args[0])
			}
			return fetching(cmd, id, func(ctx context.Context, c *client.Client) (client.Restored, error) {
				return c.Revert(ctx, id, client.RevertOptions{Prompt: turn.Prompt, Discard: discard})
			}, func(w io.Writer, done client.Restored) error { return printReverted(w, past, turn, done) })
		},
	}
	clientFlags(cmd)
	discardFlag(cmd, &discard)
	return cmd
}

// discardFlag adds the flag that discards the present files.
func discardFlag(cmd *cobra.Command, discard *bool) {
	cmd.Flags().BoolVar(discard, "discard", false, "do not keep the present files in a snapshot")
}

// printReverted prints what a session was reverted to.
func printReverted(w io.Writer, l *history, turn step, done client.Restored) error {
	when := ""
	for _, s := range l.steps {
		if s.Kind == stepSnapshot && s.Snapshot == done.Snapshot {
			when = ", taken " + ago(s.Time)
		}
	}
	files := fmt.Sprintf("Its files are those of %s%s.", done.Snapshot, when)
	if done.Snapshot == "" {
		files = "It has no files, as it had none then."
	}
	_, err := fmt.Fprintf(w, "%s went back to before %s: %s\n%s\n%s", done.Session, turn.Prompt, oneLine(turn.Text), files, replacedInWords(done))
	return err
}

// replacedInWords says how to restore the files that were replaced.
func replacedInWords(done client.Restored) string {
	if done.Replaced == "" {
		return ""
	}
	return fmt.Sprintf("The files it had are kept: dormouse snapshot restore %s %s\n", done.Session, done.Replaced)
}
