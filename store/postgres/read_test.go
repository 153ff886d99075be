package postgres_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func TestTimesAreKeptToTheMicrosecond(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	create(t, s, sessionID(1), func(b *store.Batch) { b.Rows.Session.Due = start.Add(time.Microsecond) })
	create(t, s, sessionID(2))
	c := raw(t, dsn)
	if got := query[time.Time](t, c, `SELECT created FROM sessions WHERE id = $1`, sessionID(1)); !got.Equal(start) {
		t.Errorf("created = %v, want %v", got, start)
	}
	if got := query[time.Time](t, c, `SELECT due FROM sessions WHERE id = $1`, sessionID(1)); !got.Equal(start.Add(time.Microsecond)) {
		t.Errorf("due = %v, want %v", got, start.Add(time.Microsecond))
	}
	if got := query[*time.Time](t, c, `SELECT due FROM sessions WHERE id = $1`, sessionID(2)); got != nil {
		t.Errorf("a session that is never due is stored as due at %v", got)
	}
}

// Text of the database could not hold these.
func TestAPayloadMayHoldWhatTextCannot(t *testing.T) {
	s := open(t, database(t))
	w := create(t, s, sessionID(1))
	for _, payload := range []string{`{"a":"\u0000"}`, "{\"a\":\"\x00\"}", "{\"a\":\"\xff\"}", `{"a": 1, "a": 2}`, ``} {
		b := w.batch(1)
		b.Events[0].Payload = json.RawMessage(payload)
		b.Rows.Ops = []dormouse.OpRecord{{
			Op: dormouse.Op{ID: "op_1", Origin: dormouse.Origin{Command: "\x00"}}, Status: dormouse.OpOpen, Started: start,
		}}
		if err := w.add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		events, err := s.Read(t.Context(), sessionID(1), b.After, 1)
		if err != nil || len(events) != 1 || string(events[0].Payload) != payload {
			t.Errorf("payload = %q, %v, want %q", events[0].Payload, err, payload)
		}
	}
	if ops, err := s.Ops(t.Context(), sessionID(1), 1); err != nil || ops[0].Origin.Command != "\x00" {
		t.Errorf("ops = %+v, %v", ops, err)
	}
}

func TestListsUseTheirIndexes(t *testing.T) {
	c := raw(t, database(t))
	// Enough of everything for the planner to know what is rare.
	do(t, c, `INSERT INTO sessions (id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated, due, metrics, agent, agent_version)
		SELECT 's' || n, 0, 1, 't' || n % 50, 'o' || n / 50 % 20, CASE WHEN n % 7 = 0 THEN 'p' || n % 70 ELSE '' END, '',
			'f' || n / 50 % 20, 'idle', now() - n * interval '1 second', now(),
			CASE WHEN n % 20 = 0 THEN now() + (n - 5000) * interval '1 second' END, '{}', CASE WHEN n % 3 = 0 THEN 'g' || n / 50 % 20 ELSE '' END, n % 4
		FROM generate_series(1, 10000) n`)
	do(t, c, `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob)
		SELECT 1, n, 'e' || n, 'x', '', '', now(), '', CASE WHEN n % 10 = 0 THEN 'b' || n ELSE '' END FROM generate_series(1, 10000) n`)
	do(t, c, `INSERT INTO names (session, digest, n) SELECT n / 100, 'd' || n % 1000, 1 FROM generate_series(1, 10000) n`)
	do(t, c, `INSERT INTO documents (tenant, kind, id, name, version, revision, created, updated, body)
		SELECT 't' || n % 50, 'k' || n % 3, 'd' || n, 'n' || n, 1, 1, now() - n * interval '1 second', now(), '{}' FROM generate_series(1, 10000) n`)
	do(t, c, `INSERT INTO document_versions SELECT * FROM documents`)
	do(t, c, `ANALYZE`)
	do(t, c, `SET enable_sort = off`) // what is asked is whether an index has the order
	do(t, c, `SET enable_bitmapscan = off`)
	for text, index := range map[string]string{
		`SELECT id FROM sessions WHERE due <= now() ORDER BY due, key LIMIT 5`:                                                                                                                               "sessions_due",
		`SELECT due FROM sessions WHERE due > now() ORDER BY due LIMIT 1`:                                                                                                                                    "sessions_due",
		`SELECT * FROM sessions WHERE tenant = 't1' ORDER BY created DESC, id DESC LIMIT 5`:                                                                                                                  "sessions_by_tenant",
		`SELECT * FROM sessions WHERE tenant = 't1' AND owner = 'o1' AND (created, id) < (now(), 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                                                "sessions_by_owner",
		`SELECT * FROM sessions WHERE tenant = 't1' AND phase = 'f1' AND (created, id) < (now(), 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                                                "sessions_by_phase",
		`SELECT * FROM sessions WHERE tenant = 't1' AND parent = 'p21' AND parent <> '' ORDER BY created DESC, id DESC LIMIT 5`:                                                                              "sessions_by_parent",
		`SELECT * FROM sessions WHERE tenant = 't1' AND agent = 'g1' AND agent <> '' AND agent_version = 2 ORDER BY created DESC, id DESC LIMIT 5`:                                                           "sessions_by_agent",
		`SELECT * FROM sessions WHERE tenant = 't1' AND status = ANY ('{idle}') AND created >= now() - interval '1 day' AND (created, id) > (now() - interval '1 minute', 'x') ORDER BY created, id LIMIT 5`: "sessions_by_tenant",
		`SELECT body FROM documents WHERE tenant = 't1' AND kind = 'k1' AND id = 'd1'`:                                                                                                                       "documents_pkey",
		`SELECT body FROM documents WHERE tenant = 't1' AND kind = 'k1' AND name = 'n1' AND name <> ''`:                                                                                                      "documents_by_name",
		`SELECT body FROM documents WHERE tenant = 't1' AND kind = 'k1' AND archived IS NULL AND (created, id) < (now(), 'x') ORDER BY created DESC, id DESC LIMIT 5`:                                        "documents_by_age",
		`SELECT tenant, kind, id FROM documents WHERE (tenant, kind, id) > ('t1', 'k1', 'd1') ORDER BY tenant, kind, id LIMIT 5`:                                                                             "documents_pkey",
		`SELECT body FROM document_versions WHERE tenant = 't1' AND kind = 'k1' AND id = 'd1' AND version < 9 ORDER BY version DESC LIMIT 5`:                                                                 "document_versions_pkey",
		`SELECT id FROM sessions WHERE (created, id) > (now() - interval '1 minute', 'x') ORDER BY created, id LIMIT 5`:                                                                                      "sessions_by_age",
		`SELECT 1 FROM events WHERE blob = 'b50' AND blob <> ''`:                                                                                                                                             "events_by_blob",
		`SELECT named FROM unnest('{b50,d50}'::text[]) AS named WHERE EXISTS (
			SELECT 1 FROM events JOIN sessions ON sessions.key = events.session WHERE blob = named AND blob <> ''
			UNION ALL
			SELECT 1 FROM names JOIN sessions ON sessions.key = names.session WHERE digest = named)`: "names_by_digest",
		`SELECT ctid FROM names WHERE session = 5 LIMIT 5`: "names_pkey",
	} {
		rows, err := c.Query(t.Context(), "EXPLAIN "+text)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(plan, "\n")
		if !strings.Contains(said, index) || strings.Contains(said, "Sort") || strings.Contains(said, "Seq Scan") {
			t.Errorf("%s\nplan:\n%s\nwant %s alone", text, said, index)
		}
	}
}

func TestWhatWasDeletedIsRemovedInTheEnd(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	w, other := create(t, s, sessionID(1)), create(t, s, sessionID(2))
	for _, w := range []*writer{w, other} {
		b := w.batch(6000)
		b.Rows.Session.Tags = []string{"tag"}
		b.Rows.Prompts = []dormouse.PromptRecord{{ID: "sevt_1", Seq: 2, Queued: start}}
		b.Rows.Ops = []dormouse.OpRecord{{Op: dormouse.Op{ID: "op_1"}, Status: dormouse.OpOpen, Started: start}}
		b.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: []dormouse.Digest{"sha256:a", "sha256:b"}}}
		b.Chunks = []store.Chunk{{Op: "op_1", Text: "seen"}}
		b.State = &dormouse.StateCache{Seq: b.Last(), Data: []byte("folded")}
		if err := w.add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	c := raw(t, dsn)
	if err := s.Delete(t.Context(), sessionID(1), w.epoch); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		for _, table := range []string{"events", "prompts", "ops", "points", "names", "chunks", "states", "labels", "removed"} {
			n += query[int](t, c, `SELECT count(*) FROM `+table)
		}
		return n
	}
	const others = 6001 + 8
	for end := time.Now().Add(30 * time.Second); count() > others; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d rows are left, want the %d of the other session", count(), others)
		}
	}
	checkLog(t, s, sessionID(2), 6001)
}

func TestARowThatIsNotAsItWasWrittenMustBeDamage(t *testing.T) {
	url := database(t)
	s := open(t, url)
	w := create(t, s, sessionID(1))
	if err := w.add(t.Context(), w.batch(4)); err != nil {
		t.Fatal(err)
	}
	c := raw(t, url)
	do(t, c, `UPDATE events SET payload = payload || 'x' WHERE seq = 3`)
	events, err := s.Read(t.Context(), sessionID(1), 0, 100)
	damage, ok := errors.AsType[*store.DamageError](err)
	if !ok || damage.Seq != 3 || !errors.Is(err, dormouse.ErrDamaged) || len(events) != 2 {
		t.Errorf("read = %d events, %v, want those before the third and where it stops", len(events), err)
	}
	do(t, c, `UPDATE events SET sum = NULL`)
	if events, err := s.Read(t.Context(), sessionID(1), 0, 100); err != nil || len(events) != 5 {
		t.Errorf("read of rows from before there were checksums = %d events, %v, want 5", len(events), err)
	}
}

// A row that is not what was written is derived from a log that is, and the log is what
// counts.
func TestAnIndexRowThatIsNotWhatWasWrittenMustBeNoErrorForItsSessionOrForOthers(t *testing.T) {
	for column, change := range map[string]string{
		"metrics":  `UPDATE sessions SET metrics = '[]' WHERE id = $1`,
		"tags":     `UPDATE labels SET tags = '{"z": 1}' WHERE session = (SELECT key FROM sessions WHERE id = $1)`,
		"metadata": `UPDATE labels SET metadata = '[]' WHERE session = (SELECT key FROM sessions WHERE id = $1)`,
		"created":  `UPDATE sessions SET created = '20000-01-01' WHERE id = $1`,
		"last_seq": `UPDATE sessions SET last_seq = 1 WHERE id = $1`,
	} {
		t.Run(column, func(t *testing.T) {
			url := database(t)
			s, c, ctx := open(t, url), raw(t, url), t.Context()
			labelled := func(b *store.Batch) {
				b.Rows.Session.Tags, b.Rows.Session.Metadata, b.Rows.Session.Metrics.Messages = []string{"red"}, map[string]string{"k": "v"}, 7
			}
			w := create(t, s, sessionID(1), labelled)
			create(t, s, sessionID(2), labelled)
			b := w.batch(2)
			labelled(&b)
			b.Rows.Ops = []dormouse.OpRecord{{Op: dormouse.Op{ID: "op_1", Kind: dormouse.OpModel}, Status: dormouse.OpOpen, Started: start}}
			if err := w.add(ctx, b); err != nil {
				t.Fatal(err)
			}
			mended := func(after string) {
				t.Helper()
				got, err := s.Session(ctx, sessionID(1))
				if diff := cmp.Diff(w.index, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Errorf("after %s: %v (-want +got)\n%s", after, err, diff)
				}
			}
			mended("an append")
			do(t, c, change, sessionID(1))
			if column != "last_seq" {
				one, err := s.Session(ctx, sessionID(1))
				if err != nil || one.CorruptColumns != column || !strings.Contains(one.Damage, column) {
					t.Errorf("it is %+v, %v; want that %s cannot be read", one, err, column)
				}
				found, err := s.Sessions(ctx, store.Query{Tenant: "acme", Limit: 10})
				if err != nil || len(found) != 2 {
					t.Errorf("%d sessions, %v", len(found), err)
				}
				if _, err := json.Marshal(found); err != nil {
					t.Errorf("they cannot be encoded: %v", err)
				}
				if w.epoch, err = s.Claim(ctx, sessionID(1), 0); err != nil {
					t.Fatal(err)
				}
				b := w.batch(1)
				if err := w.add(ctx, b); err != nil {
					t.Fatal(err)
				}
				mended("a claim and an append")
				do(t, c, change, sessionID(1))
			}
			do(t, c, `UPDATE ops SET op = '[]'`)
			if ops, err := s.Ops(ctx, sessionID(1), 10); err != nil || len(ops) != 1 || ops[0].ID != "op_1" {
				t.Errorf("ops = %+v, %v", ops, err)
			}
			if err := s.Rebuild(ctx, sessionID(1), dormouse.Rows{Session: w.index}); err != nil {
				t.Fatal(err)
			}
			mended("a rebuild")
			do(t, c, `UPDATE sessions SET last_seq = last_seq + 64 WHERE id = $1`, sessionID(1))
			if err := s.Rebuild(ctx, sessionID(1), dormouse.Rows{Session: w.index}); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("rebuild of a log that ends before its row says = %v, want ErrConflict", err)
			}
		})
	}
}
