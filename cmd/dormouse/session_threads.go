package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newThreads() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "threads SESSION",
		Short: "List a session's threads and what each works on",
		Long: `List the threads of a session, the primary one first. Each has a queue and a turn of
its own and works beside the others; they share the sandbox.`,
		Example: `  dormouse session threads sesn_…
  dormouse session threads open sesn_…
  dormouse session send sesn_… --thread sthr_… 'meanwhile, look at the tests'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.Thread, error) {
				return c.Threads(ctx, dormouse.SessionID(args[0]))
			}, func(w io.Writer, threads []client.Thread) error {
				var rows [][]string
				for _, t := range threads {
					rows = append(rows, []string{string(t.ID), strconv.Itoa(t.Queue), doing(t.Turn)})
				}
				return table(w, "THREAD\tQUEUE\tTURN", rows)
			})
		},
	}
	cmd.AddCommand(newThreadOpen())
	return cmd
}

// doing says what a thread does.
func doing(t *client.Turn) string {
	switch {
	case t == nil:
		return "none"
	case t.Blocked != "":
		return string(t.ID) + ", waits for " + t.Blocked
	}
	return string(t.ID) + ", attempt " + strconv.Itoa(t.Attempt)
}

func newThreadOpen() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:     "open SESSION",
		Short:   "Open a thread and print its id",
		Example: `  T=$(dormouse session threads open sesn_…)`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Thread, error) {
				return c.OpenThread(ctx, dormouse.SessionID(args[0]), id)
			}, func(w io.Writer, made client.Thread) error {
				_, err := fmt.Fprintln(w, made.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "your own `id`: the same id is the same thread")
	return cmd
}
