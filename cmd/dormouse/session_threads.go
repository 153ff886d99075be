package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
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
			type answer struct {
				Threads []rest.Thread `json:"threads"`
			}
			return get(cmd, sessionPath(args[0], "threads"), func(w io.Writer, a answer) error {
				var rows [][]string
				for _, t := range a.Threads {
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
func doing(t *rest.Turn) string {
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
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			in := make(map[string]string)
			if id != "" {
				in["id"] = id
			}
			var made rest.Thread
			raw, err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "threads"), in, &made)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, made.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "your own `id`: the same id is the same thread")
	return cmd
}
