package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/store"
)

// Rebuilt is what a rebuild did, or would do.
type Rebuilt struct {
	Sessions int `json:"sessions"`
	Changed  int `json:"changed"`
	// Failed counts the sessions that cannot be derived, and were left alone.
	Failed int `json:"failed"`
}

// Rebuild derives the rows of every session and notes which differed.
func Rebuild(ctx context.Context, d Deployment, check bool, note func(format string, args ...any)) (done Rebuilt, err error) {
	err = EachSession(ctx, d.Store, func(id dormouse.SessionID) error {
		row, err := d.Store.Session(ctx, id)
		if err != nil {
			return err
		}
		done.Sessions++
		if row.Arriving() && row.CorruptColumns == "" { // laid out now, it would run
			note("%s: is not whole; an import was stopped, or found a payload lost", id)
			done.Failed++
			return nil
		}
		if row.Needs > dormouse.LogVersion {
			note("%s: cannot be laid out: %v", id, &dormouse.NewerLogError{Session: id, Needs: row.Needs})
			done.Failed++
			return nil
		}
		rows, err := history.Rebuild(ctx, d.Store, d.Blobs, id)
		if errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, dormouse.ErrDamaged) || errors.Is(err, dormouse.ErrNewerLog) {
			note("%s: cannot be laid out: %v", id, err)
			done.Failed++
			return nil
		}
		if err != nil {
			return fmt.Errorf("rebuild %s: %w", id, err)
		}
		if rows.Session.Seq < row.Seq { // laid out, it would go on as if it had never gone further
			note("%s: cannot be laid out: its log ends at event %d, and its row says that it goes to %d", id, rows.Session.Seq, row.Seq)
			done.Failed++
			return nil
		}
		wrong, err := Compare(ctx, d.Store, id, rows)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil { // what cannot be read is not as the log has it
			wrong = append(wrong, fmt.Sprintf("rows, which cannot be read (%v),", err))
		}
		for _, what := range wrong {
			note("%s: %s differ from the log", id, what)
		}
		if len(wrong) > 0 {
			done.Changed++
		}
		if check {
			return nil
		}
		return d.Store.Rebuild(ctx, id, rows)
	})
	return done, err
}

// Compare names the kinds of rows in which the store and the log disagree.
func Compare(ctx context.Context, s store.Store, id dormouse.SessionID, want dormouse.Rows) (wrong []string, err error) {
	index, err := s.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if index.CorruptColumns != "" {
		wrong = append(wrong, "columns of the index that cannot be read ("+index.CorruptColumns+")")
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
	slices.Reverse(ops) // listed newest first, rebuilt oldest first
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

// named reports whether the store knows of every blob that snapshots name, so that
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
