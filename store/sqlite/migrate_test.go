package sqlite_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
	"github.com/dormouse-run/dormouse/store/storetest"
)

// A database from before ids were stored opens, whatever is in it: if an id was given
// twice the first event keeps it, and the operator is told.
func TestIDsThatWereGivenTwiceBeforeDoNotStopTheDatabase(t *testing.T) {
	const before = 6
	g, dir := storetest.NewGiven(), t.TempDir()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := raw(t, dir)
	do := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	do(older(t, files[:before]))
	do(`INSERT INTO sessions (key, id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated)
		VALUES (1, ?, 3, ?, 'acme', 'user:ada', '', '', 'ready', 'idle', 1, 1)`, g.Session, len(g.Events))
	for _, e := range g.Events {
		var payload any
		if e.Payload != nil {
			payload = string(e.Payload)
		}
		do(`INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob) VALUES (1, ?, ?, ?, '', '', 1, ?, ?)`,
			e.Seq, e.ID, e.Type, payload, e.Blob)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, told := range []bool{true, false} { // once, and never again
		var said bytes.Buffer
		s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if told {
			g.Check(t, s, said.String())
		} else if said.Len() > 0 {
			t.Errorf("the next server said %s", said.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A step that only adds leaves programs that do not know it what they need.
func TestASchemaThatOnlyHasMoreIsUsed(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, dir))
	_, newest, err := sqlite.Schema(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	step := func(text string, args ...any) {
		t.Helper()
		db := raw(t, dir)
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	step(`ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'`)
	step(`INSERT INTO schema_steps (version, name, least) VALUES (?, 'adds', ?)`, newest+1, newest)
	s := open(t, dir)
	create(t, s, sessionID(1))
	shut(t, s)
	if at, _, err := sqlite.Schema(t.Context(), dir); at != newest+1 || err != nil {
		t.Errorf("schema is at step %d, %v", at, err)
	}
	step(`INSERT INTO schema_steps (version, name, least) VALUES (?, 'breaks', ?)`, newest+2, newest+2)
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); !errors.Is(err, store.ErrNewer) {
		t.Errorf("open after a step that this program must know = %v, want ErrNewer", err)
	}
}

// Programs that know nine steps write the deadlines of every session, which are gone. What
// they had written of them is no loss: it follows from the log.
func TestADatabaseWithoutDeadlinesIsRefusedByWhoWritesThem(t *testing.T) {
	const before = 9
	dir := t.TempDir()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := raw(t, dir)
	for _, text := range []string{
		older(t, files[:before]),
		`INSERT INTO sessions (key, id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated)
			VALUES (1, 'sesn_old', 3, 1, 'acme', 'user:ada', '', '', 'ready', 'idle', 1, 1)`,
		`INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob) VALUES (1, 1, 'sevt_1', 'session.created', '', '', 1, '{}', '')`,
		`INSERT INTO deadlines (session, id, kind, at) VALUES (1, 'sandbox', 'sleep', 5)`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	if events, err := s.Read(t.Context(), "sesn_old", 0, 10); err != nil || len(events) != 1 {
		t.Errorf("events = %v, %v, want one", events, err)
	}
	shut(t, s)
	if n := query[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE name = 'deadlines'`); n != 0 {
		t.Error("there are deadlines")
	}
	if least := query[int](t, db, `SELECT max(least) FROM schema_steps`); least != 10 {
		t.Errorf("programs that know %d steps may use the database, want 10", least)
	}
}
