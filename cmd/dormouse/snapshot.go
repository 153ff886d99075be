package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot",
		Aliases: []string{"snapshots"},
		Short:   "What a session's files were like, and going back to it",
		Long: `A snapshot is what a session's workspace was like at one instant. One is taken when a
turn has ended that used the sandbox, and whenever somebody asks for it. Each holds
what changed since the one before.

"dormouse log" shows them among the prompts, "dormouse revert" goes back to before a
prompt with files and conversation.`,
		Example: `  dormouse snapshot list sesn_…
  dormouse snapshot create sesn_… --label 'before the rewrite'
  dormouse snapshot restore sesn_… snap_…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	clientFlags(cmd)
	cmd.AddCommand(newSnapshotCreate(), newSnapshotList(), newSnapshotShow(), newSnapshotDiff(), newSnapshotRestore(),
		newSnapshotDelete(), newSnapshotExport(), newSnapshotImport(), newSnapshotPrune())
	return cmd
}

func newSnapshotCreate() *cobra.Command {
	var o client.SnapshotOptions
	cmd := &cobra.Command{
		Use:   "create SESSION",
		Short: "Take a snapshot now",
		Long: `Take a snapshot of a session's workspace as it is and print its id. The sandbox goes on;
the agent may be at work.`,
		Example: `  dormouse snapshot create sesn_…
  dormouse snapshot create sesn_… --label 'before the rewrite'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return patiently(cmd, "taking the snapshot", func(ctx context.Context, c *client.Client) (client.Snapshot, error) {
				return c.TakeSnapshot(ctx, dormouse.SessionID(args[0]), o)
			}, func(w io.Writer, made client.Snapshot) error {
				printLeftOut(cmd.ErrOrStderr(), made)
				_, err := fmt.Fprintln(w, made.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&o.Label, "label", "", "what to call it, for people")
	cmd.Flags().StringVar(&o.ID, "id", "", "your own `id`: the same id is the same snapshot")
	return cmd
}

// printLeftOut prints how many files a snapshot does not hold.
func printLeftOut(w io.Writer, s client.Snapshot) {
	if s.LeftOut > 0 {
		fmt.Fprintf(w, "dormouse: left out, as no snapshot holds them: %s (sockets, devices, what is mounted there)\n", plural(s.LeftOut, "file"))
	}
}

func newSnapshotList() *cobra.Command {
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:     "list SESSION",
		Aliases: []string{"ls"},
		Short:   "List the snapshots of a session, newest first",
		Long: `List the snapshots of a session that can be gone back to, newest first. The session goes
on from the one that is marked with a star. SIZE is that of the files in all its layers.`,
		Example: `  dormouse snapshot list sesn_…
  dormouse snapshot list sesn_… --json | jq -r '.snapshots[0].snapshot'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Snapshots, error) {
				return c.Snapshots(ctx, dormouse.SessionID(args[0]), exactly(limit), dormouse.SnapshotID(after))
			}, func(w io.Writer, page client.Snapshots) error {
				var rows [][]string
				for _, s := range page.Snapshots {
					rows = append(rows, []string{string(s.ID) + star(s.Newest), ago(s.Taken), reasonOf(s), size(s.Bytes), s.Label})
				}
				if err := table(w, "SNAPSHOT\tTAKEN\tREASON\tSIZE\tLABEL", rows); err != nil {
					return err
				}
				if page.Next != "" {
					cmd.PrintErrf("%d of %d; more: --after %s\n", len(page.Snapshots), page.Total, page.Next)
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many, at most 100")
	cmd.Flags().StringVar(&after, "after", "", "`snapshot` that ended the page before")
	return cmd
}

func star(newest bool) string {
	if newest {
		return " *"
	}
	return ""
}

// reasonOf says why a snapshot was taken.
func reasonOf(s client.Snapshot) string {
	if s.Midway {
		return s.Reason + ", during a turn"
	}
	return s.Reason
}

func newSnapshotShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show SESSION SNAPSHOT",
		Short:   "Show all there is to know of a snapshot",
		Example: `  dormouse snapshot show sesn_… snap_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Snapshot, error) {
				return c.Snapshot(ctx, dormouse.SessionID(args[0]), dormouse.SnapshotID(args[1]))
			}, showSnapshot)
		},
	}
}

func showSnapshot(out io.Writer, s client.Snapshot) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	line("snapshot", "%s%s", s.ID, star(s.Newest))
	line("session", "%s", s.Session)
	for _, said := range [][2]string{{"parent", string(s.Parent)}, {"label", oneLine(s.Label)}} {
		if said[1] != "" {
			line(said[0], "%s", said[1])
		}
	}
	line("taken", "%s, %s", at(s.Taken), ago(s.Taken))
	line("reason", "%s", reasonOf(s))
	line("at", "event %d, workspace %d", s.At, s.Workspace)
	line("files", "%s in %d entries", size(s.Bytes), s.Entries)
	line("stored", "%s in %s", size(s.Size), plural(s.Depth, "layer"))
	for _, l := range s.Layers {
		line("layer", "%s  %s in %d entries", l.Digest, size(l.Bytes), l.Entries)
	}
	for _, path := range s.Left {
		line("left out", "%s", oneLine(path))
	}
	if more := s.LeftOut - len(s.Left); more > 0 {
		line("left out", "and %d more", more)
	}
	line("ref", "%s", s.Ref)
	return w.Flush()
}

func newSnapshotDelete() *cobra.Command {
	return &cobra.Command{
		Use:     "delete SESSION SNAPSHOT…",
		Aliases: []string{"rm"},
		Short:   "Delete snapshots",
		Long: `Delete snapshots of a session, so that they cannot be gone back to. The session's present
files stay, whatever they were made from. Deleting what is not there is well.`,
		Example: `  dormouse snapshot delete sesn_… snap_…`,
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			for _, id := range args[1:] {
				if err := c.DeleteSnapshot(cmd.Context(), dormouse.SessionID(args[0]), dormouse.SnapshotID(id)); err != nil {
					return err
				}
				raw := fmt.Appendf(nil, "{\"snapshot\":%q,\"deleted\":true}\n", id)
				if err := printed(cmd, raw, func(w io.Writer) error { _, err := fmt.Fprintln(w, id, "deleted"); return err }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newSnapshotPrune() *cobra.Command {
	var o client.PruneOptions
	cmd := &cobra.Command{
		Use:   "prune SESSION",
		Short: "Delete old snapshots",
		Long: `Delete the snapshots of a session that are older than --older-than, and the oldest of
more than --keep. The newest stays, and so does what the session's files lie over.`,
		Example: `  dormouse snapshot prune sesn_… --keep 10
  dormouse snapshot prune sesn_… --older-than 72h --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Keep < 0 || o.OlderThan < 0 || o.Keep == 0 && o.OlderThan == 0 {
				return usage("say what to keep with --keep, or what to delete with --older-than")
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Pruned, error) {
				return c.PruneSnapshots(ctx, dormouse.SessionID(args[0]), o)
			}, func(w io.Writer, gone client.Pruned) error {
				word := "deleted"
				if o.DryRun {
					word = "would be deleted"
				}
				var lines strings.Builder
				for _, id := range gone.Snapshots {
					fmt.Fprintln(&lines, id, word)
				}
				_, err := io.WriteString(w, lines.String())
				return err
			})
		},
	}
	cmd.Flags().IntVar(&o.Keep, "keep", 0, "how many to keep")
	cmd.Flags().DurationVar(&o.OlderThan, "older-than", 0, "`age` of those to delete, such as 72h")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say which would be deleted")
	return cmd
}

// patiently is ask for requests that may take long. On a terminal it prints that it is
// waiting.
func patiently[T any](cmd *cobra.Command, doing string, do func(context.Context, *client.Client) (T, error), show func(io.Writer, T) error) error {
	return ask(cmd, func(ctx context.Context, c *client.Client) (answer T, err error) {
		attended(cmd, func() string { return doing }, func() { answer, err = do(ctx, c) })
		return answer, err
	}, show)
}

// attended runs a function, and meanwhile prints what is being done and for how long.
func attended(cmd *cobra.Command, doing func() string, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	watched := isTerminal(cmd.ErrOrStderr())
	p := newProgress(cmd.ErrOrStderr())
	p.every = 0
	tick, begun := time.NewTicker(time.Second), time.Now()
	defer tick.Stop()
	for {
		select {
		case <-done:
			if watched {
				p.done()
			}
			return
		case <-tick.C:
			if watched {
				p.Update("%s, %s", doing(), time.Since(begun).Round(time.Second))
			}
		}
	}
}
