//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store/sqlite"
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
newer program has gone on with it, is left as it is.

If pages of an SQLite database are corrupt, a new one is made of what can be read, with
a row for each session of which there is a log. What is derived is laid out in it, then
it takes the place of the corrupt one, which is kept beside it. What is lost is named,
and the exit code is 3.`,
		Example: `  dormouse store rebuild --check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := withDeployment
			switch err := corruption(cmd, *where); {
			case errors.Is(err, sqlite.ErrCorrupt) && !check:
				cmd.PrintErrln(err)
				in = withSalvage
			case err != nil:
				return err
			}
			return in(cmd, *where, func(ctx context.Context, d *deployment) error {
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
