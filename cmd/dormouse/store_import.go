//go:build !windows

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store/transfer"
)

// imported is what an import did, and where.
type imported struct {
	File string `json:"file"`
	transfer.Imported
	// Workspaces is the directory where the workspaces of the sessions have to be put. An
	// archive does not have them.
	Workspaces string `json:"workspaces"`
}

func newImport(where *places) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read every session and document from an archive",
		Long: `Read every session and every document, such as agents and environments, from an
archive that "dormouse store export" wrote, and go on where it left off there. The archive is read twice: nothing is written before it
was found to be whole and to fit.

A session that is there already must have the history it has in the archive, or the
beginning of it, as an import that was stopped leaves it: run it again and it
completes. A document that is there already must be as it is in the archive,
with all its versions. Other sessions and documents of the store are left alone. No
server runs a session before all of it is there.

Every log is read back and compared when it is written. Workspaces are not part of
an archive: copy them before the server starts. If a payload was lost without which
a session cannot be loaded, its log is kept, the others go on, and the exit code is
3.`,
		Example: `  dormouse store import backup.dormouse --check
  dormouse store import backup.dormouse`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			return withAnyDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				workspaces, err := d.workspaces()
				if err != nil {
					return err
				}
				p := newProgress(cmd.ErrOrStderr())
				done := imported{File: args[0], Workspaces: workspaces}
				done.Imported, err = transfer.Import(ctx, f, d.Deployment, check, p)
				p.done()
				if err != nil {
					return fmt.Errorf("import %s: %w", args[0], err)
				}
				if err := report(cmd, cmd.OutOrStdout(), done, done.say); err != nil {
					return err
				}
				if done.Withheld > 0 {
					return errNeedsAttention
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only read the archive, and see whether it fits")
	return cmd
}

func (i imported) say(w io.Writer) {
	fmt.Fprintf(w, "%s has %s, %s, %s and %s\n%s\n", i.File,
		plural(i.Sessions, "session"), plural(i.Events, "event"), plural(i.Blobs, "blob"), plural(i.Documents, "document"), i.Digest)
	if i.Lost > 0 {
		fmt.Fprintf(w, "%s of them had been lost before it was made\n", plural(i.Lost, "payload"))
	}
	if i.Verified+i.Withheld+i.VerifiedDocuments == 0 {
		fmt.Fprintf(w, "it is whole and fits; nothing was written\n")
		return
	}
	fmt.Fprintf(w, "added %s\n", plural(i.Added, "event"))
	fmt.Fprintf(w, "verified %s: each log has the digest it had, and every row follows from its log\n", plural(i.Verified, "session"))
	if i.VerifiedDocuments > 0 {
		fmt.Fprintf(w, "verified %s: each has every version it had\n", plural(i.VerifiedDocuments, "document"))
	}
	fmt.Fprintf(w, "workspaces and snapshots are not in it: copy workspaces and homes from the old directory to %s, and the blobs\n", i.Workspaces)
}
