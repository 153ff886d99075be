package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newChildren() *cobra.Command {
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "children SESSION",
		Short: "List the sessions that a session spawned",
		Long: `List the children of a session, newest first, with where each stands for its parent:
spawned, started, ending or ended. A session's children end with it.`,
		Example: `  dormouse session children sesn_…
  dormouse session children end sesn_… sesn_…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Children, error) {
				return c.Children(ctx, dormouse.SessionID(args[0]), exactly(limit), dormouse.SessionID(after))
			}, func(w io.Writer, a client.Children) error {
				var rows [][]string
				for _, c := range a.Children {
					rows = append(rows, []string{string(c.Session), string(c.Stage), string(c.Phase), ago(c.Updated), c.Title})
				}
				if err := table(w, "CHILD\tSTAGE\tPHASE\tUPDATED\tTITLE", rows); err != nil {
					return err
				}
				if a.Next != "" {
					cmd.PrintErrf("more: --after %s\n", a.Next)
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 200")
	cmd.Flags().StringVar(&after, "after", "", "`session` that ended the page before")
	cmd.AddCommand(&cobra.Command{
		Use: "end SESSION CHILD", Short: "End a child for good, and its own children with it",
		Example: `  dormouse session children end sesn_… sesn_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.EndChild(ctx, dormouse.SessionID(args[0]), dormouse.SessionID(args[1]))
			})
		},
	})
	return cmd
}
