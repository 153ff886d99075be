package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/session"
)

func newBranch() *cobra.Command {
	var at, title string
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
			body := map[string]any{}
			if at != "" {
				body["snapshot"] = at
			}
			if title != "" {
				body["title"] = title
			}
			if cmd.Flags().Changed("processes") {
				body["processes"] = processes
			}
			var branch session.Branched
			raw, err := fetching(cmd, args[0], "branch", body, &branch)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\t%s\n", branch.Session, branch.Title)
				if err == nil && branch.Processes {
					_, err = fmt.Fprintln(cmd.ErrOrStderr(), "What ran in the sandbox runs on in it.")
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "`snapshot` to begin at; the present if not given")
	cmd.Flags().StringVar(&title, "title", "", "what to call the branch")
	cmd.Flags().BoolVar(&processes, "processes", false, "take along what runs; the session is put to sleep for it. With =false, never")
	clientFlags(cmd)
	return cmd
}
