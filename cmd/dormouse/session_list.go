package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/client"
)

type listFlags struct {
	client.ListOptions
	metadata []string
}

func newList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sessions, newest first",
		Long: `List sessions, newest first: all of them, or those that are as the flags say. What was
archived is left out unless --archived asks for it.`,
		Example: `  dormouse session list
  dormouse session list --phase waiting
  dormouse session list --text build --tag ci --metadata repo=dormouse
  dormouse session list --json | jq -r '.sessions[].session'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Metadata, err = pairs("metadata", f.metadata); err != nil {
				return err
			}
			f.Limit = exactly(f.Limit)
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Page, error) {
				return c.List(ctx, f.ListOptions)
			}, func(w io.Writer, page client.Page) error {
				var rows [][]string
				for _, s := range page.Sessions {
					phase := string(s.Phase)
					if s.Damage != "" {
						phase += ", damaged"
					}
					if s.Newer != "" {
						phase += ", of a newer version"
					}
					rows = append(rows, []string{string(s.Session), phase, ago(s.Updated), s.Title, strings.Join(s.Tags, ", ")})
				}
				if err := table(w, "SESSION\tPHASE\tUPDATED\tTITLE\tTAGS", rows); err != nil {
					return err
				}
				if page.Next != "" {
					cmd.PrintErrf("more: --after %s\n", page.Next)
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.Limit, "limit", 50, "how many, at most 200")
	fs.StringVar((*string)(&f.After), "after", "", "`session` that ended the page before")
	fs.StringVar((*string)(&f.Phase), "phase", "", "only sessions in this phase")
	fs.StringVar(&f.Text, "text", "", "only sessions whose title, agent, tags or metadata contain this, in any case")
	fs.StringArrayVar(&f.Tags, "tag", nil, "only sessions with this `tag`; given again, with all of them")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "only sessions with this `key=value`; given again, with all of them")
	fs.StringVar((*string)(&f.Parent), "parent", "", "only children of this `session`")
	fs.BoolVar(&f.Archived, "archived", false, "also those that were archived")
	return cmd
}
