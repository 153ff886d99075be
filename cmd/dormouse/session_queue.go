package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
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
				return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
					return c.CancelPrompt(ctx, dormouse.SessionID(args[0]), dormouse.EventID(cancel))
				})
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.Queued, error) {
				return c.Queue(ctx, dormouse.SessionID(args[0]))
			}, func(w io.Writer, prompts []client.Queued) error {
				var rows [][]string
				for _, p := range prompts {
					rows = append(rows, []string{string(p.ID), string(p.Status), ago(p.Queued), p.Text})
				}
				return table(w, "PROMPT\tSTATUS\tQUEUED\tTEXT", rows)
			})
		},
	}
	cmd.Flags().StringVar(&cancel, "cancel", "", "`prompt` to take out of the queue")
	return cmd
}
