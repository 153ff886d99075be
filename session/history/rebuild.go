package history

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// Rebuild derives a session's rows from its log alone.
func Rebuild(ctx context.Context, s store.Store, blobs blob.Store, id dormouse.SessionID) (dormouse.Rows, error) {
	r := Reader{Store: s, Blobs: blobs, Logger: slog.New(slog.DiscardHandler)}
	var state law.State
	prompts := make(map[dormouse.EventID]int)
	ops := make(map[dormouse.OpID]int)
	given := make(map[string]bool)
	var all dormouse.Rows
	for more := true; more; {
		var events []dormouse.Event
		var err error
		if events, more, err = r.readFolds(ctx, id, state.Seq); err != nil {
			return all, fmt.Errorf("replay %s: %w", id, err)
		}
		var rows dormouse.Rows
		state, rows = law.Project(state, events)
		for _, r := range rows.Prompts {
			if i, ok := prompts[r.ID]; ok {
				all.Prompts[i] = r
				continue
			}
			prompts[r.ID], all.Prompts = len(all.Prompts), append(all.Prompts, r)
		}
		for _, r := range rows.Ops {
			if i, ok := ops[r.ID]; ok {
				all.Ops[i] = r
				continue
			}
			ops[r.ID], all.Ops = len(all.Ops), append(all.Ops, r)
		}
		for _, g := range rows.ClientIDs {
			if !given[g.ID] {
				given[g.ID], all.ClientIDs = true, append(all.ClientIDs, g)
			}
		}
		all.Session, all.SnapshotBlobs = rows.Session, rows.SnapshotBlobsAfter(all.SnapshotBlobs)
	}
	return all, nil
}
