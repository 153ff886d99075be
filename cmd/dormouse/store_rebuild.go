package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/store"
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
				done, err := rebuild(ctx, d, check, cmd.PrintErrf)
				if err != nil {
					return err
				}
				if err := report(cmd, cmd.OutOrStdout(), done, done.say); err != nil {
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

// rebuilt is what a rebuild did, or would do.
type rebuilt struct {
	Sessions int `json:"sessions"`
	Changed  int `json:"changed"`
	// Failed counts the sessions that cannot be laid out, and were left alone.
	Failed int `json:"failed"`
}

func (r rebuilt) say(w io.Writer) {
	fmt.Fprintf(w, "rebuild: sessions=%d changed=%d", r.Sessions, r.Changed)
	if r.Failed > 0 {
		fmt.Fprintf(w, " failed=%d", r.Failed)
	}
	fmt.Fprintln(w)
}

// rebuild derives the rows of every session and tells which differed.
func rebuild(ctx context.Context, d *deployment, check bool, tell func(format string, args ...any)) (done rebuilt, err error) {
	err = eachSession(ctx, d.store, func(id dormouse.SessionID) error {
		row, err := d.store.Session(ctx, id)
		if err != nil {
			return err
		}
		done.Sessions++
		if row.Arriving() && row.Unread == "" { // laid out now, it would run
			tell("%s: is not whole; an import was stopped, or found a payload lost\n", id)
			done.Failed++
			return nil
		}
		if row.Needs > dormouse.LogVersion {
			tell("%s: cannot be laid out: %v\n", id, &dormouse.NewerLogError{Session: id, Needs: row.Needs})
			done.Failed++
			return nil
		}
		rows, err := history.Rebuild(ctx, d.store, d.blobs, id)
		if errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, dormouse.ErrDamaged) || errors.Is(err, dormouse.ErrNewerLog) {
			tell("%s: cannot be laid out: %v\n", id, err)
			done.Failed++
			return nil
		}
		if err != nil {
			return fmt.Errorf("rebuild %s: %w", id, err)
		}
		if rows.Session.Seq < row.Seq { // laid out, it would go on as if it had never gone further
			tell("%s: cannot be laid out: its log ends at event %d, and its row says that it goes to %d\n", id, rows.Session.Seq, row.Seq)
			done.Failed++
			return nil
		}
		wrong, err := compare(ctx, d.store, id, rows)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil { // what cannot be read is not as the log has it
			wrong = append(wrong, fmt.Sprintf("rows, which cannot be read (%v),", err))
		}
		for _, what := range wrong {
			tell("%s: %s differ from the log\n", id, what)
		}
		if len(wrong) > 0 {
			done.Changed++
		}
		if check {
			return nil
		}
		return d.store.Rebuild(ctx, id, rows)
	})
	return done, err
}

// compare names the kinds of rows in which the store and the log disagree.
func compare(ctx context.Context, s store.Store, id dormouse.SessionID, want dormouse.Rows) (wrong []string, err error) {
	index, err := s.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if index.Unread != "" {
		wrong = append(wrong, "columns of the index that cannot be read ("+index.Unread+")")
	}
	index.Damage = "" // it does not follow from the log
	prompts, err := s.Prompts(ctx, id)
	if err != nil {
		return nil, err
	}
	ops, err := s.Ops(ctx, id, len(want.Ops)+1)
	if err != nil {
		return nil, err
	}
	deadlines, err := s.Deadlines(ctx, id)
	if err != nil {
		return nil, err
	}
	slices.Reverse(ops) // listed newest first, rebuilt oldest first
	slices.SortStableFunc(want.Deadlines, func(a, b dormouse.Deadline) int { return a.At.Compare(b.At) })
	if index.Needs != want.Session.Needs {
		wrong = append(wrong, "log versions")
	}
	for _, c := range []struct {
		what        string
		stored, log any
	}{
		{"index", index, want.Session},
		{"prompts", append([]dormouse.PromptRecord{}, prompts...), append([]dormouse.PromptRecord{}, want.Prompts...)},
		{"ops", append([]dormouse.OpRecord{}, ops...), append([]dormouse.OpRecord{}, want.Ops...)},
		{"deadlines", append([]dormouse.Deadline{}, deadlines...), append([]dormouse.Deadline{}, want.Deadlines...)},
	} {
		stored, err := json.Marshal(c.stored)
		if err != nil {
			return nil, err
		}
		log, err := json.Marshal(c.log)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(stored, log) {
			wrong = append(wrong, c.what)
		}
	}
	ids := make([]string, 0, len(want.ClientIDs))
	for _, c := range want.ClientIDs {
		ids = append(ids, c.ID)
	}
	given, err := s.ClientIDs(ctx, id, ids...)
	if err != nil {
		return wrong, err
	}
	if !maps.Equal(given, store.Seqs(want.ClientIDs)) {
		wrong = append(wrong, "client ids")
	}
	whole, err := named(ctx, s, want.SnapshotBlobs)
	if err == nil && !whole {
		wrong = append(wrong, "names")
	}
	return wrong, err
}

// named reports whether the store knows of every blob that points name, so that
// none is collected. What it names beside them only stays longer.
func named(ctx context.Context, s store.Store, names []dormouse.SnapshotBlobs) (bool, error) {
	wanted := make(map[dormouse.Digest]bool)
	for _, n := range names {
		for _, d := range n.Digests {
			wanted[d] = true
		}
	}
	delete(wanted, "")
	if len(wanted) == 0 {
		return true, nil
	}
	found, err := s.Named(ctx, slices.Collect(maps.Keys(wanted)))
	return len(found) == len(wanted), err
}
