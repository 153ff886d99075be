//go:build !windows

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/archive"
)

// exported is what an export did.
type exported struct {
	File string `json:"file"`
	archive.Total
	Bytes  int64           `json:"bytes"`
	Digest dormouse.Digest `json:"digest"`
	// Skipped is how many sessions are not in it, because only a newer program can fold them.
	Skipped int `json:"skipped"`
	// Workspaces is where those of its sessions are, which it does not have.
	Workspaces string `json:"workspaces"`
}

func newExport(where *places) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "Write every session and document to an archive",
		Long: `Write every session to an archive: its log, what was seen of a model call that is
open, and the payloads it names; and every document, such as agents and
environments, with all its versions. The archive is compressed, can be read by any
store, and says by itself whether it is whole. FILE is there when it is finished
and not before; - writes to standard output.

Workspaces are not part of it: they stay in the data directory, under sandbox.

Two exports of the same deployment have the same digest. If payloads or events were
lost before, or a newer program has gone on with a session, the archive has everything
else, they are named, and the exit code is 3.`,
		Example: `  dormouse store export backup.dormouse
  dormouse store export - | ssh elsewhere 'cat > backup.dormouse'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			told := cmd.OutOrStdout()
			if args[0] == "-" {
				if isTerminal(told) {
					return usage("an archive is not for a terminal; name a file or send it on")
				}
				told = cmd.ErrOrStderr()
			}
			return withDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				x := &exporter{from: d, progress: newProgress(cmd.ErrOrStderr())}
				done, err := x.export(ctx, args[0], cmd.OutOrStdout())
				x.progress.done()
				if err != nil {
					return fmt.Errorf("export: %w", err)
				}
				if err := report(cmd, told, done, done.say); err != nil {
					return err
				}
				if done.Lost > 0 || done.Skipped > 0 {
					return errSeeTo
				}
				return nil
			})
		},
	}
}

func (e exported) say(w io.Writer) {
	fmt.Fprintf(w, "exported %s, %s, %s and %s to %s: %d bytes\n%s\n",
		plural(e.Sessions, "session"), plural(e.Events, "event"), plural(e.Blobs, "blob"), plural(e.Documents, "document"), e.File, e.Bytes, e.Digest)
	if e.Lost > 0 {
		fmt.Fprintf(w, "%s could not be read any more, and nothing else is missing\n", plural(e.Lost, "blob"))
	}
	if e.Skipped > 0 {
		fmt.Fprintf(w, "%s left out: only a newer program can export them\n", plural(e.Skipped, "session"))
	}
	fmt.Fprintf(w, "workspaces and snapshots are not in it: copy workspaces and homes in %s yourself, and the blobs\n", e.Workspaces)
}
