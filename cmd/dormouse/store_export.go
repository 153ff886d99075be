//go:build !windows

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store/transfer"
)

// exported is what an export did, and where.
type exported struct {
	File string `json:"file"`
	transfer.Exported
	// Workspaces is the directory of the sessions' workspaces. The archive does not have
	// them.
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
			summaryTo := cmd.OutOrStdout()
			if args[0] == "-" {
				if isTerminal(summaryTo) {
					return usage("an archive is not for a terminal; name a file or send it on")
				}
				summaryTo = cmd.ErrOrStderr()
			}
			return withDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				done, err := export(ctx, d, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
				if err != nil {
					return fmt.Errorf("export: %w", err)
				}
				if err := report(cmd, summaryTo, done, done.say); err != nil {
					return err
				}
				if done.Lost > 0 || done.Skipped > 0 {
					return errNeedsAttention
				}
				return nil
			})
		},
	}
}

// export writes to path, or to out if that is -.
func export(ctx context.Context, d *deployment, path string, out, errs io.Writer) (done exported, err error) {
	if done.Workspaces, err = d.workspaces(); err != nil {
		return done, err
	}
	done.File = path
	p := newProgress(errs)
	defer p.done()
	if path == "-" {
		done.Exported, err = transfer.Export(ctx, d.Deployment, out, p)
	} else {
		done.Exported, err = transfer.ExportFile(ctx, d.Deployment, path, p)
	}
	return done, err
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
