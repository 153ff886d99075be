package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
)

func newRebuild(where *dsn) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Lay every row out again from the logs",
		Long: `Everything but the logs is derived from the logs. This derives it again, says
what differed from what was stored, and stores it. The server must be stopped.

With --check nothing is written, and differences are an error.`,
		Example: `  dormouse store rebuild --check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				done, err := rebuild(ctx, d, check, func(id dormouse.SessionID, what string) {
					cmd.PrintErrf("%s: %s differ from the log\n", id, what)
				})
				if err != nil {
					return err
				}
				if err := report(cmd, cmd.OutOrStdout(), done, done.say); err != nil {
					return err
				}
				if check && done.Changed > 0 {
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
}

func (r rebuilt) say(w io.Writer) {
	fmt.Fprintf(w, "rebuild: sessions=%d changed=%d\n", r.Sessions, r.Changed)
}

// rebuild derives the rows of every session and reports those that differed.
func rebuild(ctx context.Context, d *deployment, check bool, differ func(dormouse.SessionID, string)) (done rebuilt, err error) {
	err = eachSession(ctx, d.store, func(id dormouse.SessionID) error {
		row, err := d.store.Session(ctx, id)
		if err != nil {
			return err
		}
		if row.Arriving() { // laid out now, it would run
			return fmt.Errorf("%s is not whole: an import was stopped; run it again", id)
		}
		rows, err := session.Rebuild(ctx, d.store, d.blobs, id)
		if err != nil {
			return fmt.Errorf("rebuild %s: %w", id, err)
		}
		wrong, err := compare(ctx, d.store, id, rows)
		if err != nil {
			return fmt.Errorf("compare %s: %w", id, err)
		}
		done.Sessions++
		for _, what := range wrong {
			differ(id, what)
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
func compare(ctx context.Context, s store.Store, id dormouse.SessionID, want store.Rows) (wrong []string, err error) {
	index, err := s.Session(ctx, id)
	if err != nil {
		return nil, err
	}
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
	for _, c := range []struct {
		what        string
		stored, log any
	}{
		{"index", index, want.Index},
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
	return wrong, nil
}
