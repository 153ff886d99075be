package main

import (
	"io"
	"net/http"
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
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			var answer struct {
				Ops []dormouse.OpRecord `json:"ops"`
			}
			raw, err := c.call(cmd.Context(), http.MethodGet, sessionPath(args[0], "ops")+"?limit="+strconv.Itoa(limit), nil, &answer)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				var rows [][]string
				for _, o := range answer.Ops {
					rows = append(rows, []string{string(o.ID), string(o.Kind), string(o.Status), o.Outcome, strconv.Itoa(o.Try), ago(o.Started)})
				}
				return table(w, "OP\tKIND\tSTATUS\tOUTCOME\tTRY\tSTARTED", rows)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 1000")
	return cmd
}
