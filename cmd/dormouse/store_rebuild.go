package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store/transfer"
)

func newRebuild(where *places) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Lay every row out again from the logs",
		Long: `Everything but the logs is derived from the logs. This derives it again, says
what differed from what was stored, and stores it. The server must be stopped.

With --check nothing is written, and differences are an error. A session that cannot
be derived, because a payload or the end of its log is lost, an import was stopped or a
newer program has gone on with it, is left as it is.`,
		Example: `  dormouse store rebuild --check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				done, err := transfer.Rebuild(ctx, d.Deployment, check, func(format string, args ...any) { cmd.PrintErrf(format+"\n", args...) })
				if err != nil {
					return err
				}
				if err := report(cmd, cmd.OutOrStdout(), done, func(w io.Writer) { printRebuilt(w, done) }); err != nil {
					return err
				}
				if check && done.Changed > 0 || done.Failed > 0 {
					return errSilent
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only compare")
	return cmd
}

func printRebuilt(w io.Writer, r transfer.Rebuilt) {
	fmt.Fprintf(w, "rebuild: sessions=%d changed=%d", r.Sessions, r.Changed)
	if r.Failed > 0 {
		fmt.Fprintf(w, " failed=%d", r.Failed)
	}
	fmt.Fprintln(w)
}
