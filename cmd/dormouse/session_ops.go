package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
)

func newOps() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "ops SESSION",
		Short:   "List side effects and how they ended, newest first",
		Example: `  dormouse session ops sesn_… --limit 200`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			type answer struct {
				Ops []dormouse.OpRecord `json:"ops"`
			}
			return get(cmd, sessionPath(args[0], "ops")+"?limit="+strconv.Itoa(limit), func(w io.Writer, a answer) error {
				var rows [][]string
				for _, o := range a.Ops {
					rows = append(rows, []string{string(o.ID), string(o.Kind), string(o.Status), o.Outcome, strconv.Itoa(o.Try), ago(o.Started)})
				}
				return table(w, "OP\tKIND\tSTATUS\tOUTCOME\tTRY\tSTARTED", rows)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 1000")
	return cmd
}
