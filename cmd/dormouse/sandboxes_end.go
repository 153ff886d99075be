//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

func newSandboxes() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandboxes",
		Short: "Look after the sandboxes of a server that has stopped",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSandboxesEnd())
	return cmd
}

func newSandboxesEnd() *cobra.Command {
	var where places
	cmd := &cobra.Command{
		Use:   "end",
		Short: "End all sandboxes that a server left",
		Long: `End every sandbox of the data directory, with all that runs in it, and let go of
what is mounted there. Servers must be stopped. Files stay, and so does the memory
of sessions that sleep; a session whose sandbox was awake says that its processes
were lost when it goes on. "dormouse session hibernate" keeps them.

Sandboxes outlive their server, so that the next one can go on with them. This is
for when there is no next one, before the directory or the machine is taken away.`,
		Example: `  dormouse sandboxes end --data /srv/dormouse && rm -r /srv/dormouse`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDeployment(cmd, where, func(ctx context.Context, d *deployment) error {
				return endSandboxes(ctx, config{Data: d.data, LogLevel: "warn"}, cmd.ErrOrStderr())
			})
		},
	}
	where.flags(cmd.Flags())
	return cmd
}

// endSandboxes vouches for the files of every session and for no sandbox.
func endSandboxes(ctx context.Context, c config, errs io.Writer) (err error) {
	kind, err := kindOf(c.Data)
	if err != nil || kind == "" {
		return err // there never was one
	}
	if c.Runner, err = os.Executable(); err != nil { // nothing is started, so that any program will do
		return err
	}
	d, err := openSandboxes(ctx, c, leaveEnvironment(c), newLogger(c, errs))
	if err != nil {
		return err
	}
	if c, ok := d.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	err = d.Sweep(ctx, func(dormouse.SessionID) sandbox.Owned { return sandbox.Owned{Known: true} })
	if err != nil {
		return fmt.Errorf("end sandboxes: %w", err)
	}
	return nil
}
