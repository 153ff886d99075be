package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

func newRebuild() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Lay every row out again from the logs",
		Long: `Everything but the logs is derived from the logs. This derives it again, says
what differed from what was stored, and stores it. The server must be stopped.

With --check nothing is written, and differences are an error.`,
		Example: `  dormouse store rebuild --check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			data, _ := cmd.Flags().GetString("data")
			s, err := sqlite.Open(cmd.Context(), data, sqlite.Options{})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			blobs, err := dir.Open(filepath.Join(data, "blobs"))
			if err != nil {
				return err
			}
			sessions, changed, err := rebuild(cmd.Context(), s, blobs, check, func(id dormouse.SessionID, what string) {
				cmd.PrintErrf("%s: %s differ from the log\n", id, what)
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rebuild: sessions=%d changed=%d\n", sessions, changed)
			if check && changed > 0 {
				return errSilent
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only compare")
	return cmd
}

// rebuild derives the rows of every session and reports those that differed.
func rebuild(ctx context.Context, s store.Store, blobs blob.Store, check bool, differ func(dormouse.SessionID, string)) (sessions, changed int, err error) {
	const page = 500
	var after dormouse.SessionID
	for {
		ids, err := s.All(ctx, after, page)
		if err != nil {
			return sessions, changed, err
		}
		for _, id := range ids {
			rows, err := session.Rebuild(ctx, s, blobs, id)
			if err != nil {
				return sessions, changed, fmt.Errorf("rebuild %s: %w", id, err)
			}
			wrong, err := compare(ctx, s, id, rows)
			if err != nil {
				return sessions, changed, fmt.Errorf("compare %s: %w", id, err)
			}
			sessions++
			for _, what := range wrong {
				differ(id, what)
			}
			if len(wrong) > 0 {
				changed++
			}
			if check {
				continue
			}
			if err := s.Rebuild(ctx, id, rows); err != nil {
				return sessions, changed, fmt.Errorf("rebuild %s: %w", id, err)
			}
		}
		if len(ids) < page {
			return sessions, changed, nil
		}
		after = ids[len(ids)-1]
	}
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
