package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/session"
)

func newSnapshotRestore() *cobra.Command {
	var history bool
	cmd := &cobra.Command{
		Use:   "restore SESSION SNAPSHOT",
		Short: "Go back to the files of a snapshot",
		Long: `Have a session go on with the files of a snapshot. What ran in its sandbox is ended; the
session must not be at work. The conversation stays as it is, unless --history takes it
back to the same instant: what was said since then is no part of it any more, and newer
snapshots go. Events stay in the log.`,
		Example: `  dormouse snapshot restore sesn_… snap_…
  dormouse snapshot restore sesn_… snap_… --history`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var done rest.Restored
			raw, err := fetching(cmd, args[0], "restore",
				map[string]any{"snapshot": args[1], "history": history}, &done)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				what := "files"
				if done.History {
					what = "files and conversation"
				}
				_, err := fmt.Fprintf(w, "%s goes on with the %s of %s\n", done.Session, what, done.Snapshot)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "take the conversation back too")
	return cmd
}

func newSnapshotDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff SESSION SNAPSHOT [SNAPSHOT]",
		Short: "List what changed between two snapshots",
		Long: `List the files that were added (+), changed (~) and removed (-) from the first snapshot to
the second. With one, from the snapshot before it. Times alone are no change.`,
		Example: `  dormouse snapshot diff sesn_… snap_…
  dormouse snapshot diff sesn_… snap_a… snap_b… --json | jq -r '.changes[].path'`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			const three = 3
			if len(args) == three {
				q.Set("to", args[2])
			}
			path := sessionPath(args[0], "snapshots", args[1], "diff") + "?" + q.Encode()
			var d rest.Diff
			raw, err := patiently(cmd, "comparing", http.MethodGet, path, nil, &d)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error { return showDiff(w, d) })
		},
	}
	return cmd
}

func showDiff(w io.Writer, d rest.Diff) error {
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
func changeLine(c session.Change) string {
	path := clean(c.Path)
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
