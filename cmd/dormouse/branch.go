package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/session"
)

func newBranch() *cobra.Command {
	var at, title string
	cmd := &cobra.Command{
		Use:   "branch SESSION",
		Short: "Make a session that goes on from another",
		Long: `Make a session that goes on from where another one is, or was at a snapshot: with its
conversation up to then and its files. From there on each goes its own way; what happens
to the one, its deletion included, does not happen to the other. The files are shared
until one of them is changed, so that a branch takes no room and no time.

What runs in the sandbox is not taken along, nor are the home directory and /tmp.`,
		Example: `  dormouse branch sesn_…
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
			var row session.Row
			raw, err := fetching(cmd, args[0], "branch", body, &row)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\t%s\n", row.Session, row.Title)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "`snapshot` to begin at; the present if not given")
	cmd.Flags().StringVar(&title, "title", "", "what to call the branch")
	clientFlags(cmd)
	return cmd
}
