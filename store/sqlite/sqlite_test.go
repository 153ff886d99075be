package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
	"github.com/dormouse-run/dormouse/store/storetest"
)

func TestStoreKeepsItsPromises(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

func open(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shut(t testing.TB, s *sqlite.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// raw opens the database of a directory behind the store's back.
func raw(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "dormouse.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func query[T any](t *testing.T, db *sql.DB, text string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestAStoreThatIsOpenedAgainHasEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a dir?with%odd#names")
	s := open(t, dir)
	w := create(t, s, sessionID(1))
	b := w.batch(3)
	b.Rows.Session.Due = dormouse.DueNow
	b.Rows.Prompts = []dormouse.PromptRecord{{ID: "sevt_1", Status: dormouse.PromptIsQueued, Seq: 2, Queued: start}}
	b.Rows.Ops = []dormouse.OpRecord{{Op: dormouse.Op{ID: "op_1", Kind: dormouse.OpModel}, Status: dormouse.OpOpen, Started: start}}
	b.Chunks = []store.Chunk{{Op: "op_1", Text: "seen"}}
	b.State = &dormouse.StateCache{Seq: 4, Version: 1, Data: []byte("folded")}
	if err := w.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	before := dump(t, s, sessionID(1))
	shut(t, s)
	if _, err := os.Stat(filepath.Join(dir, "dormouse.db-wal")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a closed store left its write-ahead log: %v", err)
	}

	s = open(t, dir)
	defer shut(t, s)
	if diff := cmp.Diff(before, dump(t, s, sessionID(1))); diff != "" {
		t.Errorf("after opening again (-before +after):\n%s", diff)
	}
	if err := w.add(t.Context(), w.batch(1)); !errors.Is(err, dormouse.ErrClosing) {
		t.Errorf("append to the closed store = %v, want ErrClosing", err)
	}
	w.store = s
	if err := w.add(t.Context(), w.batch(1)); err != nil {
		t.Errorf("append under the epoch of before: %v", err)
	}
	epoch, err := s.Claim(t.Context(), sessionID(1), 0)
	if err != nil || epoch <= w.epoch {
		t.Errorf("claim = %d, %v, want more than %d", epoch, err, w.epoch)
	}
}

// dump writes down all that a store has of one session.
func dump(t *testing.T, s store.Store, id dormouse.SessionID) string {
	t.Helper()
	ctx := t.Context()
	var out bytes.Buffer
	say := func(v any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	index, err := s.Session(ctx, id)
	say(index, err)
	events, err := s.Read(ctx, id, 0, 1<<20)
	say(events, err)
	prompts, err := s.Prompts(ctx, id)
	say(prompts, err)
	ops, err := s.Ops(ctx, id, 100)
	say(ops, err)
	chunks, err := s.Chunks(ctx, id, "op_1")
	say(chunks, err)
	state, err := s.State(ctx, id)
	say(state, err)
	return out.String()
}

func TestTimesAreWholeMicrosecondsInUTC(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer shut(t, s)
	create(t, s, sessionID(1), func(b *store.Batch) { b.Rows.Session.Due = start.Add(time.Microsecond) })
	create(t, s, sessionID(2))
	db := raw(t, dir)
	if got := query[int64](t, db, `SELECT created FROM sessions WHERE id = ?`, sessionID(1)); got != start.UnixMicro() {
		t.Errorf("created = %d, want %d", got, start.UnixMicro())
	}
	if got := query[int64](t, db, `SELECT due FROM sessions WHERE id = ?`, sessionID(1)); got != start.UnixMicro()+1 {
		t.Errorf("due = %d, want %d", got, start.UnixMicro()+1)
	}
	if got := query[sql.NullInt64](t, db, `SELECT due FROM sessions WHERE id = ?`, sessionID(2)); got.Valid {
		t.Errorf("a session that is never due is stored as due at %d", got.Int64)
	}
}

// An append that breaks a rule of the schema is a bug of its caller; the others
// in its commit must not fail with it.
func TestAnAppendTheSchemaRefusesFailsAlone(t *testing.T) {
	s := open(t, t.TempDir())
	defer shut(t, s)
	var writers [64]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	var running sync.WaitGroup
	for i, w := range writers {
		running.Go(func() {
			for range 10 {
				b := w.batch(1)
				if i%8 == 0 {
					b.Chunks = []store.Chunk{{Op: "op_1", N: -1}}
					if err := w.add(t.Context(), b); !errors.Is(err, dormouse.ErrInvalid) {
						t.Errorf("append of a chunk before the first = %v, want ErrInvalid", err)
					}
					b.Chunks = nil
				}
				if err := w.add(t.Context(), b); err != nil {
					t.Errorf("append to %s: %v", w.index.Session, err)
				}
			}
		})
	}
	running.Wait()
	for _, w := range writers {
		if events, err := s.Read(t.Context(), w.index.Session, 0, 100); err != nil || len(events) != 11 {
			t.Errorf("%s has %d events, %v, want 11", w.index.Session, len(events), err)
		}
	}
}

// What a transaction changed and took back is not known to be written: the next
// append, of the same rows, writes all of them.
func TestAppendAfterARollbackWritesEveryRow(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := create(t, s, sessionID(1))
	b := w.batch(1)
	due := start.Add(time.Hour)
	b.Rows.Session.Title, b.Rows.Session.Due, b.Rows.Session.Archived = "another title", due, due
	b.Rows.Session.Tags, b.Rows.Session.Metadata = []string{"red"}, map[string]string{"a": "b"}
	b.Chunks = []store.Chunk{{Op: "op_1", N: -1}} // the schema refuses it, after all the rest
	if err := w.add(t.Context(), b); !errors.Is(err, dormouse.ErrInvalid) {
		t.Fatalf("append of a chunk before the first = %v, want ErrInvalid", err)
	}
	b.Chunks = nil
	if err := w.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got, err := s.Session(t.Context(), sessionID(1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.Rows.Session, got); diff != "" {
		t.Errorf("the index row is not what was appended: %s", diff)
	}

	// And a session whose creation was taken back is not there.
	n := &writer{store: s, index: w.index}
	n.index.Session, n.index.Seq = sessionID(2), 0
	first := n.batch(1)
	first.Chunks = []store.Chunk{{Op: "op_1", N: -1}}
	if err := s.Create(t.Context(), first); !errors.Is(err, dormouse.ErrInvalid) {
		t.Fatalf("create with a chunk before the first = %v, want ErrInvalid", err)
	}
	if err := s.Append(t.Context(), store.Batch{Session: sessionID(2), Epoch: 1}); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("append to a session that was not made = %v, want ErrNotFound", err)
	}
	shut(t, s)
}

func TestARowThatIsNotAsItWasWrittenMustBeDamage(t *testing.T) {
	for column, change := range map[string]string{
		"payload": `UPDATE events SET payload = replace(payload, '3', '4') WHERE seq = 3`,
		"type":    `UPDATE events SET type = 'agent.messagf' WHERE seq = 3`,
		"id":      `UPDATE events SET id = id || 'x' WHERE seq = 3`,
		"time":    `UPDATE events SET time = time + 1 WHERE seq = 3`,
		"blob":    `UPDATE events SET blob = 'sha256:00' WHERE seq = 3`,
		"seq":     `UPDATE events SET seq = 300 WHERE seq = 3`,
		"session": `UPDATE events SET session = session + 1 WHERE seq = 3`,
	} {
		t.Run(column, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			w := create(t, s, sessionID(1))
			if err := w.add(t.Context(), w.batch(4)); err != nil {
				t.Fatal(err)
			}
			shut(t, s)
			db := raw(t, dir)
			if _, err := db.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir)
			defer shut(t, s)
			events, err := s.Read(t.Context(), sessionID(1), 0, 100)
			damage, ok := errors.AsType[*store.DamageError](err)
			if !ok || damage.Seq != 3 || !errors.Is(err, dormouse.ErrDamaged) || len(events) != 2 {
				t.Errorf("read = %d events, %v, want those before the third and where it stops", len(events), err)
			}
			if column == "seq" || column == "session" {
				return
			}
			if events, err := s.Read(t.Context(), sessionID(1), 3, 100); err != nil || len(events) != 2 {
				t.Errorf("read after it = %d events, %v, want 2", len(events), err)
			}
		})
	}
}

func TestRowsFromBeforeThereWereChecksumsAreAccepted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := create(t, s, sessionID(1))
	if err := w.add(t.Context(), w.batch(4)); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	db := raw(t, dir)
	if _, err := db.ExecContext(t.Context(), `UPDATE events SET sum = NULL`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer shut(t, s)
	if events, err := s.Read(t.Context(), sessionID(1), 0, 100); err != nil || len(events) != 5 {
		t.Errorf("read = %d events, %v, want 5", len(events), err)
	}
}

func TestSchemaOfANewerProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, dir))
	db := raw(t, dir)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO schema_steps (version, name) VALUES (1000, 'of the future')`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	for range 2 { // a refusal gives the directory back
		_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if !errors.Is(err, store.ErrNewer) {
			t.Fatalf("open = %v, want ErrNewer", err)
		}
		for _, want := range []string{dir, "step 1000"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
}

func TestSchemaIsBroughtForwardFromEveryStep(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, dir))
	want := schema(t, raw(t, dir))
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("migrations = %v, %v", files, err)
	}
	for have := range files {
		t.Run(fmt.Sprintf("%d steps", have), func(t *testing.T) {
			dir := t.TempDir()
			db := raw(t, dir)
			if _, err := db.ExecContext(t.Context(), older(t, files[:have])); err != nil {
				t.Fatal(err)
			}
			db.Close()
			s := open(t, dir)
			create(t, s, sessionID(1))
			shut(t, s)
			if diff := cmp.Diff(want, schema(t, raw(t, dir))); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

// A database of before there were labels, or names, keeps what it has, and its
// sessions are as good as new ones.
func TestSessionsOfAnOlderSchemaAreKept(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for have := 2; have < len(files); have++ {
		t.Run(fmt.Sprintf("%d steps", have), func(t *testing.T) { testOlderSchema(t, files[:have]) })
	}
}

func testOlderSchema(t *testing.T, files []string) {
	dir := t.TempDir()
	script := older(t, files) + `INSERT INTO sessions (key, id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated, due)
			VALUES (7, 'sesn_old', 3, 2, 'acme', 'user:ada', '', 'a title', 'ready', 'idle', 1000000, 2000000, NULL);
		INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob)
			VALUES (7, 1, 'sevt_1', 'session.created', '', 'user:ada', 1000000, '{}', ''),
				(7, 2, 'sevt_2', 'agent.message', '', 'agent', 2000000, NULL, 'sha256:old');`
	db := raw(t, dir)
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatal(err)
	}
	db.Close()

	s := open(t, dir)
	defer shut(t, s)
	want := dormouse.SessionRow{
		Session: "sesn_old", Tenant: "acme", Owner: dormouse.User("ada"), Title: "a title", Phase: dormouse.PhaseReady, Status: dormouse.StatusIdle,
		Created: time.Unix(1, 0).UTC(), Updated: time.Unix(2, 0).UTC(), Seq: 2, Needs: 1,
	}
	listed, err := s.Sessions(t.Context(), store.Query{Tenant: "acme", Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]dormouse.SessionRow{want}, listed, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	if named, err := s.Named(t.Context(), []dormouse.Digest{"sha256:old", "sha256:new"}); err != nil || len(named) != 1 {
		t.Errorf("named = %v, %v, want one", named, err)
	}
	w := &writer{store: s, epoch: 3, index: want}
	b := w.batch(1)
	b.Rows.Session.Tags = []string{"new"}
	b.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: []dormouse.Digest{"sha256:new"}}}
	if err := w.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if events, err := s.Read(t.Context(), "sesn_old", 0, 9); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v, want 3", len(events), err)
	}
	if got, err := s.Session(t.Context(), "sesn_old"); err != nil || len(got.Tags) != 1 {
		t.Errorf("tags = %v, %v, want one", got.Tags, err)
	}
	if named, err := s.Named(t.Context(), []dormouse.Digest{"sha256:old", "sha256:new"}); err != nil || len(named) != 2 {
		t.Errorf("named = %v, %v, want both", named, err)
	}
}

// older makes the schema of a program that knew only some steps.
func older(t *testing.T, files []string) string {
	t.Helper()
	script := `CREATE TABLE schema_steps (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;`
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script += string(text) + fmt.Sprintf(`INSERT INTO schema_steps (version, name) VALUES (%d, 'step');`, i+1)
	}
	return script
}

func schema(t *testing.T, db *sql.DB) string {
	return query[string](t, db, `SELECT group_concat(sql, ';' || char(10)) FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name)`)
}

func TestQueriesUseTheirIndexes(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, dir))
	db := raw(t, dir)
	const listed = `SELECT title, search FROM sessions LEFT JOIN labels ON labels.session = sessions.key WHERE tenant = 'a' `
	for text, index := range map[string]string{
		`SELECT id FROM sessions WHERE due <= 5 ORDER BY due, key LIMIT 5`:                                                                                                       "sessions_due",
		`SELECT due FROM sessions WHERE due > 5 ORDER BY due LIMIT 1`:                                                                                                            "sessions_due",
		`SELECT id FROM sessions WHERE (created, id) > (5, 'x') ORDER BY created, id LIMIT 5`:                                                                                    "sessions_by_age",
		listed + `AND archived IS NULL ORDER BY created DESC, id DESC LIMIT 5`:                                                                                                   "sessions_by_tenant",
		listed + `AND archived IS NULL AND instr(search, 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                                                            "sessions_by_tenant",
		listed + `AND owner = 'o' AND archived IS NULL AND (created, id) < (5, 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                                      "sessions_by_owner",
		listed + `AND phase = 'p' AND archived IS NULL AND (created, id) < (5, 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                                      "sessions_by_phase",
		listed + `AND parent = 'p' AND parent <> '' ORDER BY created DESC, id DESC LIMIT 5`:                                                                                      "sessions_by_parent",
		listed + `AND agent = 'g' AND agent <> '' AND agent_version = 2 AND (created, id) < (5, 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                     "sessions_by_agent",
		listed + `AND created >= 1 AND created <= 9 AND (created, id) > (5, 'x') ORDER BY created, id LIMIT 5`:                                                                   "sessions_by_tenant",
		`SELECT body FROM documents WHERE tenant = 'a' AND kind = 'k' AND id = 'i'`:                                                                                              "sqlite_autoindex_documents_1",
		`SELECT 1 FROM documents WHERE tenant = 'a' AND kind = 'k' AND name = 'n' AND name <> '' AND id <> 'x'`:                                                                  "documents_by_name",
		`SELECT body FROM documents WHERE tenant = 'a' AND kind = 'k' AND created >= 1 AND archived IS NULL AND (created, id) < (5, 'x') ORDER BY created DESC, id DESC LIMIT 5`: "documents_by_age",
		`SELECT id FROM documents WHERE (tenant, kind, id) > ('a', 'k', 'i') ORDER BY tenant, kind, id LIMIT 5`:                                                                  "COVERING INDEX sqlite_autoindex_documents_1",
		`SELECT body, version FROM documents WHERE tenant = 'a' AND kind = 'k' AND id = 'i' AND version < 9
			UNION ALL SELECT body, version FROM document_versions WHERE tenant = 'a' AND kind = 'k' AND id = 'i' AND version < 9 ORDER BY version DESC LIMIT 5`: "sqlite_autoindex_document_versions_1",
		`SELECT 1 FROM events JOIN sessions ON sessions.key = events.session WHERE blob = 'd' AND blob <> ''`:          "events_by_blob",
		`SELECT 1 FROM names JOIN sessions ON sessions.key = names.session WHERE digest = 'd'`:                         "COVERING INDEX names_by_digest",
		`DELETE FROM names WHERE (session, digest) IN (SELECT session, digest FROM names WHERE session = 1 LIMIT 5)`:   "PRIMARY KEY (session=?)",
		`SELECT id, seq FROM client_ids WHERE session = 1 AND id IN ('a', 'b')`:                                        "PRIMARY KEY (session=? AND id=?)",
		`DELETE FROM client_ids WHERE (session, id) IN (SELECT session, id FROM client_ids WHERE session = 1 LIMIT 5)`: "PRIMARY KEY (session=?)",
		`DELETE FROM points WHERE rowid IN (SELECT rowid FROM points WHERE session = 1 LIMIT 5)`:                       "sqlite_autoindex_points_1",
		`DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE session = 1 LIMIT 5)`:                       "sqlite_autoindex_events_1",
		`DELETE FROM ops WHERE n IN (SELECT n FROM ops WHERE session = 1 LIMIT 5)`:                                     "sqlite_autoindex_ops_1",
		`DELETE FROM chunks WHERE (session, op, n) IN (SELECT session, op, n FROM chunks WHERE session = 1 LIMIT 5)`:   "PRIMARY KEY (session=?)",
	} {
		plan := strings.Join(explain(t, db, text), "\n")
		if !strings.Contains(plan, index) || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nplan:\n%s\nwant %s", text, plan, index)
		}
	}
}

// explain says how SQLite would answer.
func explain(t *testing.T, db *sql.DB, text string) (plan []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestCloseWaitsForWhatWasHandedIn(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var writers [32]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			for {
				if err := w.add(context.Background(), w.batch(1)); err != nil {
					if !errors.Is(err, dormouse.ErrClosing) {
						t.Errorf("append = %v, want ErrClosing", err)
					}
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	shut(t, s)
	running.Wait()
	s = open(t, dir)
	defer shut(t, s)
	for _, w := range writers {
		index, err := s.Session(t.Context(), w.index.Session)
		if err != nil || index.Seq != w.index.Seq {
			t.Errorf("%s ends at %d, %v; the last append said %d", w.index.Session, index.Seq, err, w.index.Seq)
		}
	}
}
