package main

import (
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

func newQueue() *cobra.Command {
	var cancel string
	cmd := &cobra.Command{
		Use:   "queue SESSION",
		Short: "List the prompts that wait, or cancel one",
		Example: `  dormouse session queue sesn_…
  dormouse session queue sesn_… --cancel sevt_…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel != "" {
				return request(cmd, http.MethodDelete, sessionPath(args[0], "queue", cancel), nil)
			}
			type answer struct {
				Prompts []rest.Queued `json:"prompts"`
			}
			return get(cmd, sessionPath(args[0], "queue"), func(w io.Writer, a answer) error {
				var rows [][]string
				for _, p := range a.Prompts {
					rows = append(rows, []string{string(p.ID), string(p.Status), ago(p.Queued), p.Text})
				}
				return table(w, "PROMPT\tSTATUS\tQUEUED\tTEXT", rows)
			})
		},
	}
	cmd.Flags().StringVar(&cancel, "cancel", "", "`prompt` to take out of the queue")
	return cmd
}
