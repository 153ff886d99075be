package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// sessionIndexes have the id and the key of every session, as its row has. In the order of
// its own columns SQLite reads nothing but the index.
var sessionIndexes = []struct{ name, order string }{
	{"sqlite_autoindex_sessions_1", "id"},
	{"sessions_by_age", "created"},
	{"sessions_by_tenant", "tenant"},
	{"sessions_by_owner", "tenant"},
	{phaseIndex, "tenant"},
}

// phaseIndex also has the phase of every session.
const phaseIndex = "sessions_by_phase"

// found is what is known of the session that has a key.
type found struct {
	row []driver.Value       // its row, nil if that cannot be read
	ids []dormouse.SessionID // what it may be called, the likeliest first
	// indexed says that an index of the sessions has it: it was not deleted.
	indexed bool
	// arriving says that an index has it as one whose import was not finished.
	arriving bool
}

// copySessions copies the row of each session, and makes one for each whose row cannot be
// read and whose log is there. A session that was deleted stays deleted.
func (s *Salvage) copySessions(ctx context.Context) error {
	columns, err := s.columns(ctx, "sessions")
	if err != nil {
		return err
	}
	keyAt, idAt := slices.Index(columns, "key"), slices.Index(columns, "id")
	sessions := make(map[int64]*found)
	at := func(key int64) *found {
		if sessions[key] == nil {
			sessions[key] = new(found)
		}
		return sessions[key]
	}
	// known says that the table or an index of it is whole: what neither has was deleted.
	known, err := s.eachRow(ctx, "sessions", columns, func(row []driver.Value) error {
		if key, ok := row[keyAt].(int64); ok {
			f := at(key)
			f.row = row
			f.call(row[idAt])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy sessions: %w", err)
	}
	for _, index := range sessionIndexes {
		wanted := []string{"key", "id"}
		if index.name == phaseIndex {
			wanted = append(wanted, "phase")
		}
		whole, err := s.fromBothEnds(ctx, "sessions INDEXED BY "+index.name, wanted, index.order, func(row []driver.Value) error {
			if key, ok := row[0].(int64); ok {
				f := at(key)
				f.indexed = true
				f.call(row[1])
				f.arriving = f.arriving || len(row) > 2 && row[2] == ""
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", index.name, err)
		}
		known = known || whole
	}
	if !known {
		s.lose("sessions: neither they nor an index of them can be read whole; those of which no log is left are not there")
	}
	keys, err := list(ctx, s.Store, scan[int64], copiedKeys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		at(key)
	}
	removed, err := s.copyRemoved(ctx, sessions, known)
	if err != nil {
		return err
	}
	insert := insertInto("sessions", columns)
	for _, key := range slices.Sorted(maps.Keys(sessions)) {
		if removed[key] {
			continue
		}
		if err := s.copySession(ctx, key, sessions[key], insert, idAt); err != nil {
			return err
		}
	}
	if err := s.removeOrphans(ctx, sessions); err != nil {
		return err
	}
	return s.missing(ctx, sessions, removed)
}

// copiedKeys selects the keys that copied rows have.
const copiedKeys = `SELECT session FROM events UNION SELECT session FROM chunks UNION SELECT session FROM labels
	UNION SELECT session FROM prompts UNION SELECT session FROM ops UNION SELECT session FROM points
	UNION SELECT session FROM names UNION SELECT session FROM client_ids`

// removeOrphans marks keys that rows have and no session has as being removed. Otherwise
// the next session would get such a key, and the rows with it.
func (s *Salvage) removeOrphans(ctx context.Context, sessions map[int64]*found) error {
	keys, err := list(ctx, s.Store, scan[int64], copiedKeys+` EXCEPT SELECT key FROM sessions EXCEPT SELECT session FROM removed`)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if len(sessions[key].ids) == 0 { // the others are named where they are lost
			s.lose("rows of a session that nobody can name (key %d); they are in the corrupt database only", key)
		}
	}
	return s.markRemoved(ctx, keys)
}

// markRemoved marks keys as being removed.
func (s *Salvage) markRemoved(ctx context.Context, keys []int64) error {
	var rows [][]driver.Value
	for _, key := range keys {
		rows = append(rows, []driver.Value{key})
	}
	_, err := s.put(ctx, texts[markRemoved], rows)
	return err
}

// missing records the sessions that a row or an index mentions and of which nothing is
// left. A corrupt index may also have a session under a wrong key.
func (s *Salvage) missing(ctx context.Context, sessions map[int64]*found, removed map[int64]bool) error {
	ids, err := list(ctx, s.Store, scan[dormouse.SessionID], `SELECT id FROM sessions`)
	if err != nil {
		return err
	}
	there := make(map[dormouse.SessionID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for key, f := range sessions {
		if !removed[key] && len(f.ids) > 0 && (f.row != nil || f.indexed) && !slices.ContainsFunc(f.ids, func(id dormouse.SessionID) bool { return there[id] }) {
			s.lose("%s: neither its row nor its log can be read", f.ids[0])
		}
	}
	return nil
}

// call notes what a session may be called.
func (f *found) call(v driver.Value) {
	if id, ok := v.(string); ok && !slices.Contains(f.ids, dormouse.SessionID(id)) {
		f.ids = append(f.ids, dormouse.SessionID(id))
	}
}

// copyRemoved copies which sessions are being removed. If that cannot be read, they are
// those that have neither a row nor an index entry, if the indexes can be read; else
// none.
func (s *Salvage) copyRemoved(ctx context.Context, sessions map[int64]*found, known bool) (map[int64]bool, error) {
	removed := make(map[int64]bool)
	if had, err := s.columns(ctx, "removed"); err != nil || len(had) == 0 {
		return removed, err // at that step nothing was deleted
	}
	whole, err := s.eachRow(ctx, "removed", []string{"session"}, func(row []driver.Value) error {
		if key, ok := row[0].(int64); ok {
			removed[key] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("copy removed: %w", err)
	}
	for key, f := range sessions {
		switch {
		case f.row != nil, f.indexed && !whole: // an index may be older than the deletion
			delete(removed, key)
		case !whole && known:
			removed[key] = true
		}
	}
	if !whole && !known {
		s.lose("removed: which sessions were being removed cannot be read; one that was deleted may be there again")
	}
	return removed, s.markRemoved(ctx, slices.Sorted(maps.Keys(removed)))
}

// copySession writes the row of a session under the id that its log was written under.
func (s *Salvage) copySession(ctx context.Context, key int64, f *found, insert string, idAt int) error {
	log, err := s.begins(ctx, key)
	if err != nil {
		return err
	}
	var made dormouse.Created
	if len(log) > 0 && log[0].Seq == 1 && json.Unmarshal(log[0].Payload, &made) == nil {
		f.call(string(made.Session))
	}
	if len(f.ids) == 0 {
		return nil
	}
	id := f.ids[0]
	for _, known := range f.ids {
		if slices.ContainsFunc(log, func(e store.Stored) bool { return e.Sum != nil && *e.Sum == store.Sum(known, e.Event) }) {
			id = known
			break
		}
	}
	if f.row != nil {
		f.row[idAt] = string(id)
		refused, err := s.put(ctx, insert, [][]driver.Value{f.row})
		if err != nil || refused == 0 {
			return err
		}
	}
	if len(log) == 0 {
		return nil // nothing of it is there
	}
	phase := dormouse.PhaseCreating
	if f.arriving {
		phase = "" // laid out, it would run
	}
	return s.makeRow(ctx, key, id, phase, made, log)
}

// begins returns the first events of a log.
func (s *Salvage) begins(ctx context.Context, key int64) ([]store.Stored, error) {
	return list(ctx, s.Store, readStored, selectEvents+` WHERE session = ? ORDER BY seq LIMIT 8`, key)
}

// lastSeq is the highest seq that anything has of a session. Events that are lost are still
// in their index, and requests and the cached fold tell of them: if the log ends before, the
// session is damaged, and no seq is given twice.
func (s *Salvage) lastSeq(ctx context.Context, key int64) (int64, error) {
	last, err := first(list(ctx, s.Store, scan[int64], `SELECT max(
		coalesce((SELECT max(seq) FROM events WHERE session = ?1), 0),
		coalesce((SELECT max(seq) FROM client_ids WHERE session = ?1), 0),
		coalesce((SELECT max(seq) FROM prompts WHERE session = ?1), 0))`, key))
	if err != nil {
		return 0, err
	}
	for _, query := range []string{
		`SELECT seq FROM events INDEXED BY sqlite_autoindex_events_1 WHERE session = ? ORDER BY seq DESC LIMIT 1`,
		`SELECT seq FROM states WHERE session = ?`,
	} {
		err := s.read(ctx, 1, func(row []driver.Value) error {
			if seq, ok := row[0].(int64); ok {
				last = max(last, seq)
			}
			return nil
		}, query, key)
		if err != nil && code(err) != lib.SQLITE_CORRUPT {
			return 0, err
		}
	}
	return last, nil
}

// makeRow makes the row of a session whose own is lost. What is not known here follows from
// its log. Its epoch does not: it is the time in seconds, which is more than any session
// was claimed, and more than the next time a row is made.
func (s *Salvage) makeRow(ctx context.Context, key int64, id dormouse.SessionID, phase dormouse.Phase, made dormouse.Created, log []store.Stored) error {
	last, err := s.lastSeq(ctx, key)
	if err != nil {
		return err
	}
	begun := micros(log[0].Time)
	refused, err := s.put(ctx, `INSERT INTO sessions (key, id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, [][]driver.Value{{
		key, string(id), time.Now().Unix(), last, made.Tenant, string(made.Owner), string(made.Parent), made.Title,
		string(phase), string(dormouse.StatusIdle), begun, begun,
	}})
	if refused > 0 {
		s.lose("%s: another session has its id", id)
	}
	return err
}
