package memory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// session is all there is of one session.
type session struct {
	epoch    store.Epoch
	owner    uint64 // the incarnation of the server that owns it; 0: none
	index    dormouse.SessionRow
	events   []dormouse.Event
	prompts  map[dormouse.EventID]dormouse.PromptRecord
	ops      map[dormouse.OpID]op
	recorded int // ops ever recorded
	names    map[dormouse.SnapshotID][]dormouse.Digest
	given    map[string]uint64 // the ids that clients gave
	chunks   map[dormouse.OpID]map[int]string
	state    dormouse.StateCache
}

// op remembers when it was first recorded, which orders ops.
type op struct {
	dormouse.OpRecord
	nth int
}

// admits reports whether a writer under this epoch may write. A session that was never
// claimed cannot be written.
func (ss *session) admits(epoch store.Epoch) bool {
	return ss != nil && epoch != 0 && epoch == ss.epoch
}

// repeats refuses a batch with an id that a client has given before.
func (ss *session) repeats(b store.Batch) error {
	if b.Rows == nil {
		return nil
	}
	brought := make(map[string]bool)
	for _, id := range b.Rows.ClientIDs {
		if _, given := ss.given[id.ID]; given || brought[id.ID] {
			return fmt.Errorf("id %s was given before: %w", id.ID, dormouse.ErrConflict)
		}
		brought[id.ID] = true
	}
	return nil
}

// forget drops what is derived.
func (ss *session) forget() {
	ss.prompts = make(map[dormouse.EventID]dormouse.PromptRecord)
	ss.ops = make(map[dormouse.OpID]op)
	ss.names = make(map[dormouse.SnapshotID][]dormouse.Digest)
	ss.given = make(map[string]uint64)
	ss.chunks = make(map[dormouse.OpID]map[int]string)
	ss.state = dormouse.StateCache{}
}

func (ss *session) apply(b store.Batch) {
	for _, e := range b.Events {
		e.Time = utc(e.Time)
		e.Payload = slices.Clone(e.Payload)
		ss.events = append(ss.events, e)
	}
	if b.Rows != nil {
		ss.applyRows(*b.Rows)
	}
	for _, c := range b.Chunks {
		if o, ok := ss.ops[c.Op]; ok && o.Status != dormouse.OpOpen {
			continue
		}
		if ss.chunks[c.Op] == nil {
			ss.chunks[c.Op] = make(map[int]string)
		}
		ss.chunks[c.Op][c.N] = c.Text
	}
	if b.State != nil {
		ss.state = *b.State
		ss.state.Data = slices.Clone(b.State.Data)
	}
}

func (ss *session) applyRows(r dormouse.Rows) {
	damage := ss.index.Damage // what Mark said
	ss.index = cloned(r.Session)
	ss.index.Damage = damage
	for _, p := range r.Prompts {
		p.Queued = utc(p.Queued)
		ss.prompts[p.ID] = p
	}
	for _, rec := range r.Ops {
		rec.Started, rec.Finished = utc(rec.Started), utc(rec.Finished)
		nth := ss.recorded
		if old, ok := ss.ops[rec.ID]; ok {
			nth = old.nth
		} else {
			ss.recorded++
		}
		ss.ops[rec.ID] = op{rec, nth}
		if rec.Status != dormouse.OpOpen {
			delete(ss.chunks, rec.ID)
		}
	}
	for _, n := range r.SnapshotBlobs {
		ss.names[n.Snapshot] = slices.Clone(n.Digests)
	}
	for _, released := range r.Released {
		delete(ss.names, released)
	}
	for _, id := range r.ClientIDs {
		ss.given[id.ID] = id.Seq
	}
}

// cloned is an index row that shares nothing with the given one.
func cloned(i dormouse.SessionRow) dormouse.SessionRow {
	i.Created, i.Updated, i.Due, i.Archived = utc(i.Created), utc(i.Updated), utc(i.Due), utc(i.Archived)
	i.Tags, i.Metadata = slices.Clone(i.Tags), maps.Clone(i.Metadata)
	return i
}

// utc is what a database keeps of a time.
func utc(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }
