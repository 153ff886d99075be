package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newBranch() *cobra.Command {
	var o client.BranchOptions
	var processes bool
	cmd := &cobra.Command{
		Use:   "branch SESSION",
		Short: "Make a session that goes on from another",
		Long: `Make a session that goes on from where another one is, or was at a snapshot: with its
conversation up to then and its files. From there on each goes its own way; what happens
to the one, its deletion included, does not happen to the other. The files are shared
until one of them is changed, so that a branch takes no room and no time.

If the session sleeps, what ran in its sandbox runs on in the branch too, with its home
directory and /tmp; with --processes the session is put to sleep for that, and wakes when
it is used. Without, and from a snapshot, a branch begins with files and conversation.`,
		Example: `  dormouse branch sesn_…
  dormouse branch sesn_… --processes
  dormouse branch sesn_… --at snap_… --title 'the other way'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := dormouse.SessionID(args[0])
			if cmd.Flags().Changed("processes") {
				o.Processes = &processes
			}
			return fetching(cmd, id, func(ctx context.Context, c *client.Client) (client.Branched, error) {
				return c.Branch(ctx, id, o)
			}, func(w io.Writer, branch client.Branched) error {
				_, err := fmt.Fprintf(w, "%s\t%s\n", branch.Session, branch.Title)
				if err == nil && branch.Processes {
					_, err = fmt.Fprintln(cmd.ErrOrStderr(), "What ran in the sandbox runs on in it.")
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar((*string)(&o.Snapshot), "at", "", "`snapshot` to begin at; the present if not given")
	cmd.Flags().StringVar(&o.Title, "title", "", "what to call the branch")
	cmd.Flags().BoolVar(&processes, "processes", false, "take along what runs; the session is put to sleep for it. With =false, never")
	clientFlags(cmd)
	return cmd
}
