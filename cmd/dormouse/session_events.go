package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newEvents() *cobra.Command {
	var o client.EventOptions
	cmd := &cobra.Command{
		Use:   "events SESSION",
		Short: "Print a session's history",
		Long:  "Print a session's events from a cursor on and end. \"follow\" goes on.",
		Example: `  dormouse session events sesn_…
  dormouse session events sesn_… --all --json | jq .`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			if o.Limit <= 0 {
				return nil
			}
			for e, err := range c.Events(cmd.Context(), dormouse.SessionID(args[0]), o) {
				if err != nil {
					return err
				}
				if err := printed(cmd, append(e.Raw, '\n'), func(w io.Writer) error { return eventLine(w, e.Event) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&o.After, "after", 0, "last `event` already seen")
	cmd.Flags().IntVar(&o.Limit, "limit", 1000, "how many")
	cmd.Flags().BoolVar(&o.All, "all", false, "print the server's bookkeeping as well")
	return cmd
}

// eventLine prints one event as one line.
func eventLine(w io.Writer, e dormouse.Event) error {
	_, err := io.WriteString(w, strconv.FormatUint(e.Seq, 10)+"\t"+e.Time.Local().Format("15:04:05.000")+"\t"+string(e.Type)+"\t"+compactJSON(e.Payload)+"\n")
	return err
}
