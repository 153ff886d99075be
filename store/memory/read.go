package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Read returns events with a seq above after.
func (s *Store) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) (events []dormouse.Event, err error) {
	err = s.read(ctx, "read", id, func(ss *session) error {
		if ss == nil || after >= uint64(len(ss.events)) {
			return nil
		}
		tail := ss.events[after:]
		events = slices.Clone(tail[:min(len(tail), max(limit, 0))])
		for i := range events {
			events[i].Payload = slices.Clone(events[i].Payload)
		}
		return nil
	})
	return events, err
}

// Session returns the index row of a session.
func (s *Store) Session(ctx context.Context, id dormouse.SessionID) (index dormouse.SessionRow, err error) {
	err = s.read(ctx, "look up", id, func(ss *session) error {
		if ss == nil {
			return dormouse.ErrNotFound
		}
		index = cloned(ss.index)
		return nil
	})
	return index, err
}

// Sessions lists the sessions of a tenant, newest first unless it is asked for the oldest.
func (s *Store) Sessions(ctx context.Context, q store.Query) (found []dormouse.SessionRow, err error) {
	order := func(a, b dormouse.SessionRow) int { return byAge(b, a) }
	if q.Oldest {
		order = byAge
	}
	from, until := q.Window()
	err = s.read(ctx, "list after", q.After, func(last *session) error {
		if last != nil && last.index.Tenant != q.Tenant {
			return dormouse.ErrNotFound
		}
		found, err = s.list(q.After, q.Limit, func(i dormouse.SessionRow) bool {
			return i.Tenant == q.Tenant &&
				(q.Owner == "" || i.Owner == q.Owner) &&
				(q.Parent == "" || i.Parent == q.Parent) &&
				(q.Phase == "" || i.Phase == q.Phase) &&
				(q.AgentID == "" || i.AgentID == q.AgentID) &&
				(q.AgentVersion == 0 || i.AgentVersion == q.AgentVersion) &&
				(len(q.Statuses) == 0 || slices.Contains(q.Statuses, i.Status)) &&
				!i.Created.Before(from) && (until.IsZero() || !i.Created.After(until)) &&
				(q.Archived || i.Archived.IsZero()) &&
				strings.Contains(i.Search, strings.ToLower(q.Text)) &&
				labelled(i, q)
		}, order)
		return err
	})
	return found, err
}

// labelled reports whether a session has all of the tags and metadata that are asked for.
func labelled(i dormouse.SessionRow, q store.Query) bool {
	for _, tag := range q.Tags {
		if !slices.Contains(i.Tags, tag) {
			return false
		}
	}
	for key, value := range q.Metadata {
		if has, ok := i.Metadata[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// All lists every session, oldest first.
func (s *Store) All(ctx context.Context, after dormouse.SessionID, limit int) (ids []dormouse.SessionID, err error) {
	err = s.read(ctx, "list after", after, func(*session) error {
		found, err := s.list(after, limit, func(dormouse.SessionRow) bool { return true }, byAge)
		ids = names(found)
		return err
	})
	return ids, err
}

// Epoch returns the newest epoch of a session.
func (s *Store) Epoch(ctx context.Context, id dormouse.SessionID) (epoch store.Epoch, err error) {
	err = s.read(ctx, "look up", id, func(ss *session) error {
		if ss == nil {
			return dormouse.ErrNotFound
		}
		epoch = ss.epoch
		return nil
	})
	return epoch, err
}

// Named returns those of the digests that an event or a snapshot names.
func (s *Store) Named(ctx context.Context, digests []dormouse.Digest) (named []dormouse.Digest, err error) {
	err = s.read(ctx, "look for names of digests", "", func(*session) error {
		blobs := make(map[dormouse.Digest]bool)
		for ss := range maps.Values(s.base.sessions) {
			for _, e := range ss.events {
				blobs[e.Blob] = true
			}
			for digests := range maps.Values(ss.names) {
				for _, d := range digests {
					blobs[d] = true
				}
			}
		}
		delete(blobs, "")
		for _, d := range digests {
			if blobs[d] {
				named = append(named, d)
			}
		}
		return nil
	})
	return named, err
}

// Prompts lists a session's prompts, oldest first.
func (s *Store) Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) (found []dormouse.PromptRecord, err error) {
	err = s.read(ctx, "list prompts of", id, func(ss *session) error {
		if ss == nil {
			return nil
		}
		for p := range maps.Values(ss.prompts) {
			if len(statuses) == 0 || slices.Contains(statuses, p.Status) {
				found = append(found, p)
			}
		}
		slices.SortFunc(found, func(a, b dormouse.PromptRecord) int {
			return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
		})
		return nil
	})
	return found, err
}

// Prompt returns one prompt of a session.
func (s *Store) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (found dormouse.PromptRecord, err error) {
	err = s.read(ctx, "look up a prompt of", id, func(ss *session) error {
		if ss == nil {
			return dormouse.ErrNotFound
		}
		p, ok := ss.prompts[prompt]
		if !ok {
			return dormouse.ErrNotFound
		}
		found = p
		return nil
	})
	return found, err
}

// ClientIDs returns the seq of each of the ids that a client has given in a session.
func (s *Store) ClientIDs(ctx context.Context, id dormouse.SessionID, ids ...string) (found map[string]uint64, err error) {
	err = s.read(ctx, "look up ids of", id, func(ss *session) error {
		found = make(map[string]uint64)
		for _, id := range ids {
			if ss == nil {
				break
			}
			if seq, ok := ss.given[id]; ok {
				found[id] = seq
			}
		}
		return nil
	})
	return found, err
}

// Ops lists a session's ops, newest first.
func (s *Store) Ops(ctx context.Context, id dormouse.SessionID, limit int) (found []dormouse.OpRecord, err error) {
	err = s.read(ctx, "list ops of", id, func(ss *session) error {
		if ss == nil {
			return nil
		}
		ops := slices.SortedFunc(maps.Values(ss.ops), func(a, b op) int { return cmp.Compare(b.nth, a.nth) })
		for _, o := range ops[:min(len(ops), max(limit, 0))] {
			found = append(found, o.OpRecord)
		}
		return nil
	})
	return found, err
}

// State returns the cached fold of a session's log.
func (s *Store) State(ctx context.Context, id dormouse.SessionID) (state dormouse.StateCache, err error) {
	err = s.read(ctx, "load state of", id, func(ss *session) error {
		if ss != nil {
			state = ss.state
			state.Data = slices.Clone(state.Data)
		}
		return nil
	})
	return state, err
}

// Chunks returns an open op's chunks in order.
func (s *Store) Chunks(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) (found []store.Chunk, err error) {
	err = s.read(ctx, "load chunks of", id, func(ss *session) error {
		if ss == nil {
			return nil
		}
		for _, n := range slices.Sorted(maps.Keys(ss.chunks[op])) {
			found = append(found, store.Chunk{Op: op, N: n, Text: ss.chunks[op][n]})
		}
		return nil
	})
	return found, err
}

// Due lists sessions due at or before t, most overdue first.
func (s *Store) Due(ctx context.Context, t time.Time, limit int) (ids []dormouse.SessionID, err error) {
	err = s.read(ctx, "list due", "", func(*session) error {
		found, err := s.list("", limit, func(i dormouse.SessionRow) bool { return due(i, t) }, byDue)
		ids = names(found)
		return err
	})
	return ids, err
}

// NextDue returns the earliest due time after t, or the zero time.
func (s *Store) NextDue(ctx context.Context, t time.Time) (next time.Time, err error) {
	err = s.read(ctx, "find next due", "", func(*session) error {
		for ss := range maps.Values(s.base.sessions) {
			if d := ss.index.Due; ss.index.Needs <= dormouse.LogVersion && d.After(t) && (next.IsZero() || d.Before(next)) {
				next = d
			}
		}
		return nil
	})
	return next, err
}

// due reports whether a session that this program can fold is due.
func due(i dormouse.SessionRow, t time.Time) bool {
	return !i.Due.IsZero() && !i.Due.After(t) && i.Needs <= dormouse.LogVersion
}

func byDue(a, b dormouse.SessionRow) int { return cmp.Or(a.Due.Compare(b.Due), byAge(a, b)) }

func byAge(a, b dormouse.SessionRow) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Session, b.Session))
}

func names(found []dormouse.SessionRow) []dormouse.SessionID {
	ids := make([]dormouse.SessionID, len(found))
	for i, f := range found {
		ids[i] = f.Session
	}
	return ids
}
