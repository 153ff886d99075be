package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newSnapshotRestore() *cobra.Command {
	var o client.RestoreOptions
	cmd := &cobra.Command{
		Use:   "restore SESSION SNAPSHOT",
		Short: "Go back to the files of a snapshot",
		Long: `Have a session go on with the files of a snapshot. What ran in its sandbox is ended; the
session must not be at work. The conversation stays as it is, unless --history takes it
back to the same instant: what was said since then is no part of it any more, and newer
snapshots go. Events stay in the log. The files that were there are kept in a snapshot,
which it names; with --discard they are not.`,
		Example: `  dormouse snapshot restore sesn_… snap_…
  dormouse snapshot restore sesn_… snap_… --history`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := dormouse.SessionID(args[0])
			o.Snapshot = dormouse.SnapshotID(args[1])
			return fetching(cmd, id, func(ctx context.Context, c *client.Client) (client.Restored, error) {
				return c.Restore(ctx, id, o)
			}, func(w io.Writer, done client.Restored) error {
				what := "files"
				if done.History {
					what = "files and conversation"
				}
				_, err := fmt.Fprintf(w, "%s goes on with the %s of %s\n%s", done.Session, what, done.Snapshot, replacedInWords(done))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&o.History, "history", false, "take the conversation back too")
	discardFlag(cmd, &o.Discard)
	return cmd
}

func newSnapshotDiff() *cobra.Command {
	var o client.DiffOptions
	cmd := &cobra.Command{
		Use:   "diff SESSION [SNAPSHOT [SNAPSHOT]]",
		Short: "List what changed between two snapshots",
		Long: `List the files that were added (+), changed (~) and removed (-) from the first snapshot to
the second. With one, from the snapshot before it; with none, in the newest. Times alone
are no change.

With --with the second is of another session, such as a branch: the newest of each unless
others are named.`,
		Example: `  dormouse snapshot diff sesn_…
  dormouse snapshot diff sesn_a… --with sesn_b…
  dormouse snapshot diff sesn_… snap_a… snap_b… --json | jq -r '.changes[].path'`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			const three = 3
			if len(args) == three {
				o.To = dormouse.SnapshotID(args[2])
			}
			return patiently(cmd, "comparing", func(ctx context.Context, c *client.Client) (d client.Diff, err error) {
				var snapshot dormouse.SnapshotID
				if len(args) > 1 {
					snapshot = dormouse.SnapshotID(args[1])
				} else if snapshot, err = newestSnapshot(ctx, c, dormouse.SessionID(args[0])); err != nil {
					return d, err
				}
				return c.Diff(ctx, dormouse.SessionID(args[0]), snapshot, o)
			}, showDiff)
		},
	}
	cmd.Flags().StringVar((*string)(&o.With), "with", "", "`session` that the second snapshot is of")
	return cmd
}

// newestSnapshot is the newest of a session.
func newestSnapshot(ctx context.Context, c *client.Client, id dormouse.SessionID) (dormouse.SnapshotID, error) {
	list, err := c.Snapshots(ctx, id, 1, "")
	if err != nil {
		return "", err
	}
	if len(list.Snapshots) == 0 {
		return "", fmt.Errorf("session %s has no snapshot yet; dormouse snapshot create %s takes one", id, id)
	}
	return list.Snapshots[0].ID, nil
}

func showDiff(w io.Writer, d client.Diff) error {
	for _, c := range d.Changes {
		if _, err := fmt.Fprintln(w, changeLine(c)); err != nil {
			return err
		}
	}
	if d.Omitted > 0 {
		fmt.Fprintf(w, "… and %d more\n", d.Omitted)
	}
	_, err := fmt.Fprintf(w, "%d added, %d changed, %d removed\n", d.Added, d.Changed, d.Removed)
	return err
}

// changeLine is one name of a diff.
func changeLine(c dormouse.Change) string {
	path := strings.ReplaceAll(clean(c.Path), "\n", string(unicode.ReplacementChar)) // a name is one line
	if c.Kind == "directory" {
		path += "/"
	}
	isFile := c.Kind == "file"
	switch {
	case c.What == "added" && isFile:
		return fmt.Sprintf("+ %s  %s", path, size(c.Size))
	case c.What == "added":
		return "+ " + path
	case c.What == "removed":
		return "- " + path
	case isFile && c.Was != c.Size:
		return fmt.Sprintf("~ %s  %s, was %s", path, size(c.Size), size(c.Was))
	}
	return "~ " + path
}
