package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
	"github.com/dormouse-run/dormouse/store/storetest"
)

// child tells a process that this test binary starts of itself which database to
// open.
const child = "DORMOUSE_TEST_CHILD"

// openOnce is what the child does.
func openOnce(dsn string) int {
	s, err := postgres.Open(context.Background(), dsn, postgres.Options{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// schema writes down all tables, columns, constraints and indexes of a database, and the
// steps it has taken.
func schema(t *testing.T, dsn string) string {
	t.Helper()
	rows, err := raw(t, dsn).Query(t.Context(), `
		SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || coalesce(collation_name, '')
			FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT version || ' ' || name FROM schema_steps ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestSchemaIsBroughtForwardFromEveryStep(t *testing.T) {
	want := schema(t, database(t))
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 3 {
		t.Fatalf("migrations = %v, %v", files, err)
	}
	for have := range files {
		t.Run(fmt.Sprintf("%d steps", have), func(t *testing.T) {
			dsn := server.DSN(createDB(t, ""))
			older(t, raw(t, dsn), files[:have])
			create(t, open(t, dsn), sessionID(1))
			if diff := cmp.Diff(want, schema(t, dsn)); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

// older makes the schema of a program that knew only some steps.
func older(t *testing.T, c *pgx.Conn, files []string) {
	t.Helper()
	if len(files) > 0 {
		do(t, c, `CREATE TABLE schema_steps (version integer PRIMARY KEY, name text NOT NULL)`)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		do(t, c, string(text))
		name := strings.TrimSuffix(filepath.Base(file)[5:], ".sql")
		do(t, c, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, i+1, name)
	}
}

// A database from before snapshots named blobs keeps what it has, and its sessions
// are as good as new ones.
func TestSessionsOfAnOlderSchemaAreKept(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for have := 3; have < len(files); have++ {
		t.Run(fmt.Sprintf("%d steps", have), func(t *testing.T) {
			dsn := server.DSN(createDB(t, ""))
			c := raw(t, dsn)
			older(t, c, files[:have])
			do(t, c, `INSERT INTO sessions (id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated, metrics)
				VALUES ('sesn_old', 3, 2, 'acme', 'user:ada', '', 'a title', 'ready', 'idle', $1, $1, '{}')`, start)
			do(t, c, `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob)
				SELECT key, 1, 'sevt_1', 'session.created', '', 'user:ada', $1::timestamptz, '{}'::bytea, '' FROM sessions
				UNION ALL SELECT key, 2, 'sevt_2', 'agent.message', '', 'agent', $1, NULL, 'sha256:old' FROM sessions`, start)
			s := open(t, dsn)
			w := newWriter(s, "sesn_old")
			if err := w.claim(t.Context()); err != nil || w.epoch != 4 || w.index.Seq != 2 || w.index.Title != "a title" {
				t.Fatalf("claimed %+v under epoch %d, %v", w.index, w.epoch, err)
			}
			asked := []dormouse.Digest{"sha256:old", "sha256:new"}
			if named, err := s.Named(t.Context(), asked); err != nil || len(named) != 1 {
				t.Errorf("named = %v, %v, want one", named, err)
			}
			b := w.batch(1)
			b.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: asked[1:]}}
			if err := w.add(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if named, err := s.Named(t.Context(), asked); err != nil || len(named) != 2 {
				t.Errorf("named = %v, %v, want both", named, err)
			}
			checkLog(t, s, "sesn_old", 3)
		})
	}
}

func TestSchemaOfANewerProgramIsRefused(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	do(t, raw(t, dsn), `INSERT INTO schema_steps (version, name) VALUES (1000, 'of the future')`)
	_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "step 1000") {
		t.Errorf("open = %v, want ErrNewer and the step", err)
	}
}

// A step that only adds leaves programs that do not know it what they need.
func TestASchemaThatOnlyHasMoreIsUsed(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	_, newest, err := postgres.Schema(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	c := raw(t, dsn)
	do(t, c, `ALTER TABLE sessions ADD COLUMN mood text NOT NULL DEFAULT 'calm'`)
	do(t, c, `INSERT INTO schema_steps (version, name, least) VALUES ($1, 'adds', $2)`, newest+1, newest)
	s := open(t, dsn)
	create(t, s, sessionID(1))
	if at, _, err := postgres.Schema(t.Context(), dsn); at != newest+1 || err != nil {
		t.Errorf("schema is at step %d, %v", at, err)
	}
	shared := joined(t, s)
	do(t, c, `INSERT INTO schema_steps (version, name, least) VALUES ($1, 'breaks', $1)`, newest+2)
	if _, err := s.Join(t.Context(), shared, time.Minute); !errors.Is(err, store.ErrNewer) {
		t.Errorf("join after a step that this program must know = %v, want ErrNewer", err)
	}
	if _, _, err := postgres.Schema(t.Context(), dsn); !errors.Is(err, store.ErrNewer) {
		t.Errorf("schema = %v, want ErrNewer", err)
	}
}

// joined joins once, so that it can be seen to join no more.
func joined(t *testing.T, s *postgres.Store) store.Server {
	t.Helper()
	me, err := s.Join(t.Context(), store.Server{Name: "a", Addr: "http://a", Place: "here"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

// A step that older programs must know is not taken while one of them may write.
func TestABreakingStepIsNotTakenBeneathALivingServer(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, have := range []int{8, 9} { // the next step names itself
		t.Run(fmt.Sprintf("%d steps", have), func(t *testing.T) {
			dsn := server.DSN(createDB(t, ""))
			c := raw(t, dsn)
			older(t, c, files[:have])
			do(t, c, `INSERT INTO servers (name, addr, place, lease_until) VALUES ('old one', '', '', clock_timestamp() + interval '1 hour')`)
			for id, server := range map[string]any{"sesn_loaded": 1, "sesn_free": nil} {
				do(t, c, `INSERT INTO sessions (id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated, metrics, server)
					VALUES ($1, 3, 2, 'acme', 'user:ada', '', '', 'ready', 'idle', now(), clock_timestamp(), '{}', $2)`, id, server)
			}
			_, err = postgres.Open(t.Context(), dsn, postgres.Options{})
			if !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "stop old one first") {
				t.Errorf("open beneath a living server = %v", err)
			}
			if at, _, err := postgres.Schema(t.Context(), dsn); at != have || err != nil {
				t.Errorf("schema is at step %d, %v, want %d", at, err, have)
			}
			do(t, c, `UPDATE servers SET lease_until = clock_timestamp()`) // it was paused, and may come back
			s := open(t, dsn)
			for id, want := range map[dormouse.SessionID]store.Epoch{"sesn_loaded": 4, "sesn_free": 3} {
				if epoch, err := s.Epoch(t.Context(), id); err != nil || epoch != want {
					t.Errorf("%s has epoch %d, %v, want %d", id, epoch, err, want)
				}
			}
		})
	}
}

// Programs that know nine steps write the deadlines of every session, which are gone.
func TestADatabaseWithoutDeadlinesIsRefusedByWhoWritesThem(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	c := raw(t, dsn)
	if there := query[bool](t, c, `SELECT to_regclass('deadlines') IS NOT NULL`); there {
		t.Error("there are deadlines")
	}
	if least := query[int](t, c, `SELECT max(least) FROM schema_steps`); least != 10 {
		t.Errorf("programs that know %d steps may use the database, want 10", least)
	}
}

func TestServersThatStartAtOnceBringTheSchemaForwardOnce(t *testing.T) {
	want := schema(t, database(t))
	dsn := server.DSN(createDB(t, ""))
	var running sync.WaitGroup
	for range 6 {
		running.Go(func() {
			if openOnce(dsn) != 0 {
				t.Error("a server did not start")
			}
		})
	}
	running.Wait()
	if diff := cmp.Diff(want, schema(t, dsn)); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

// Kills exactly between the steps are in the crash tests; these are at
// any time at all.
func TestAMigrationThatIsKilledIsTakenUpAgain(t *testing.T) {
	want := schema(t, database(t))
	dsn := server.DSN(createDB(t, ""))
	for n := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), child+"="+dsn)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(10+7*n)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
	}
	shut(t, open(t, dsn))
	if diff := cmp.Diff(want, schema(t, dsn)); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

// A database from before ids were stored opens, whatever is in it: if an id was given
// twice the first event keeps it, and the operator is told.
func TestIDsThatWereGivenTwiceBeforeDoNotStopTheDatabase(t *testing.T) {
	const before = 6
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	g, dsn := storetest.NewGiven(), server.DSN(createDB(t, ""))
	c := raw(t, dsn)
	older(t, c, files[:before])
	do(t, c, `INSERT INTO sessions (id, epoch, last_seq, tenant, owner, parent, title, phase, status, created, updated, metrics)
		VALUES ($1, 3, $2, 'acme', 'user:ada', '', '', 'ready', 'idle', $3, $3, '{}')`, g.Session, len(g.Events), start)
	for _, e := range g.Events {
		do(t, c, `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob)
			SELECT key, $1, $2, $3, '', '', $4, $5, $6 FROM sessions`, e.Seq, e.ID, e.Type, start, []byte(e.Payload), e.Blob)
	}
	for _, told := range []bool{true, false} { // once, and never again
		var said bytes.Buffer
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if told {
			g.Check(t, s, said.String())
		} else if strings.Contains(said.String(), "brought forward") {
			t.Errorf("the next server said %s", said.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
