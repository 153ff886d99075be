package main

import (
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

func newList() *cobra.Command {
	var limit int
	var after, phase string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sessions, newest first",
		Example: `  dormouse session list
  dormouse session list --phase waiting
  dormouse session list --json | jq -r '.sessions[].session'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if after != "" {
				q.Set("after", after)
			}
			if phase != "" {
				q.Set("phase", phase)
			}
			var page rest.Page
			raw, err := c.call(cmd.Context(), http.MethodGet, "/api/sessions?"+q.Encode(), nil, &page)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				var rows [][]string
				for _, s := range page.Sessions {
					rows = append(rows, []string{string(s.Session), string(s.Phase), ago(s.Updated), s.Title})
				}
				if err := table(w, "SESSION\tPHASE\tUPDATED\tTITLE", rows); err != nil {
					return err
				}
				if page.Next != "" {
					cmd.PrintErrf("more: --after %s\n", page.Next)
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 200")
	cmd.Flags().StringVar(&after, "after", "", "`session` that ended the page before")
	cmd.Flags().StringVar(&phase, "phase", "", "only sessions in this phase")
	return cmd
}
