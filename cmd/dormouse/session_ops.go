package main

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newOps() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "ops SESSION",
		Short:   "List side effects and how they ended, newest first",
		Example: `  dormouse session ops sesn_… --limit 200`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]dormouse.OpRecord, error) {
				return c.Ops(ctx, dormouse.SessionID(args[0]), exactly(limit))
			}, func(w io.Writer, ops []dormouse.OpRecord) error {
				var rows [][]string
				for _, o := range ops {
					rows = append(rows, []string{string(o.ID), string(o.Kind), string(o.Status), o.Outcome, strconv.Itoa(o.Try), ago(o.Started)})
				}
				return table(w, "OP\tKIND\tSTATUS\tOUTCOME\tTRY\tSTARTED", rows)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 1000")
	return cmd
}
