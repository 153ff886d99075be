package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newSend() *cobra.Command {
	var o client.SendOptions
	var follow bool
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
			o.Content = []dormouse.Block{dormouse.Text(text)}
			var raw []byte
			session := dormouse.SessionID(args[0])
			p, err := c.Send(client.KeepAnswer(cmd.Context(), &raw), session, o)
			if err != nil {
				return err
			}
			if follow {
				return followTurn(cmd, c, session, p)
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %s\n", p.ID, p.Status)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&o.ID, "id", "", "your own `id` for the prompt")
	threadFlag(cmd, &o.Thread)
	cmd.Flags().BoolVar(&follow, "follow", false, "show what happens until the turn ends")
	return cmd
}
