package main

import (
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

type listFlags struct {
	limit                      int
	after, phase, text, parent string
	tags, metadata             []string
	archived                   bool
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
			q, err := f.query()
			if err != nil {
				return err
			}
			return get(cmd, "/api/sessions?"+q.Encode(), func(w io.Writer, page rest.Page) error {
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
	fs.IntVar(&f.limit, "limit", 50, "how many, at most 200")
	fs.StringVar(&f.after, "after", "", "`session` that ended the page before")
	fs.StringVar(&f.phase, "phase", "", "only sessions in this phase")
	fs.StringVar(&f.text, "text", "", "only sessions whose title, agent, tags or metadata contain this, in any case")
	fs.StringArrayVar(&f.tags, "tag", nil, "only sessions with this `tag`; given again, with all of them")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "only sessions with this `key=value`; given again, with all of them")
	fs.StringVar(&f.parent, "parent", "", "only children of this `session`")
	fs.BoolVar(&f.archived, "archived", false, "also those that were archived")
	return cmd
}

// query holds only what was said.
func (f listFlags) query() (url.Values, error) {
	q := url.Values{"limit": {strconv.Itoa(f.limit)}}
	for name, v := range map[string]string{"after": f.after, "phase": f.phase, "text": f.text, "parent": f.parent} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if len(f.tags) > 0 {
		q["tag"] = f.tags
	}
	metadata, err := pairs("metadata", f.metadata)
	for key, value := range metadata {
		q.Set("metadata."+key, value)
	}
	if f.archived {
		q.Set("archived", "true")
	}
	return q, err
}
