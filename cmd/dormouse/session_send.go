package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

func newSend() *cobra.Command {
	var id string
	var follow bool
	var thread *string
	cmd := &cobra.Command{
		Use:   "send SESSION [TEXT…]",
		Short: "Send a prompt",
		Long: `Send a prompt, from the arguments or from standard input, and print its id once
it is durable. With --follow, show what happens until its turn has ended; the exit
code is then that of the turn.

A prompt sent with --id is accepted once however often it is sent.`,
		Example: `  dormouse session send sesn_… '$ make test' --follow
  dormouse session send sesn_… --thread sthr_… 'meanwhile, look at the tests'
  git diff | dormouse session send sesn_… --id review-1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args[1:], " ")
			if text == "" || text == "-" {
				b, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("read prompt: %w", err)
				}
				text = string(b)
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			request := onThread(map[string]any{"content": text}, thread)
			if id != "" {
				request["id"] = id
			}
			var p rest.Prompt
			raw, err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "prompts"), request, &p)
			if err != nil {
				return err
			}
			if follow {
				return followTurn(cmd, args[0], p)
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %s\n", p.ID, p.Status)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "your own `id` for the prompt")
	thread = threadFlag(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "show what happens until the turn ends")
	return cmd
}
