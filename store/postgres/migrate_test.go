package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/store/postgres"
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

// schema spells all tables, columns, constraints and indexes of a database, and
// the steps it has taken.
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
			c := raw(t, dsn)
			if have > 0 {
				do(t, c, `CREATE TABLE schema_steps (version integer PRIMARY KEY, name text NOT NULL)`)
			}
			for i, file := range files[:have] {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				do(t, c, string(text))
				name := strings.TrimSuffix(filepath.Base(file)[5:], ".sql")
				do(t, c, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, i+1, name)
			}
			create(t, open(t, dsn), sessionID(1))
			if diff := cmp.Diff(want, schema(t, dsn)); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemaOfANewerProgramIsRefused(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	do(t, raw(t, dsn), `INSERT INTO schema_steps (version, name) VALUES (1000, 'of the future')`)
	_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if !errors.Is(err, postgres.ErrNewer) || !strings.Contains(err.Error(), "step 1000") {
		t.Errorf("open = %v, want ErrNewer and the step", err)
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

// A kill at the very points between the steps is the crash tests'; these are at
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
