package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
	"github.com/dormouse-run/dormouse/store/storetest"
)

// server is the PostgreSQL of all tests; each has a database of its own.
var server *pgserver.Server

// template is a database whose schema is the newest.
const template = "template"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(child); dsn != "" {
		os.Exit(openOnce(dsn))
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx := context.Background()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if server, err = pgserver.Start(ctx, "max_connections=200", "fsync=off"); err != nil {
		return fail(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			code = fail(err)
		}
		if err := goleak.Find(); err != nil && code == 0 {
			code = fail(err)
		}
	}()
	if err := server.CreateDB(ctx, template, ""); err != nil {
		return fail(err)
	}
	s, err := postgres.Open(ctx, server.DSN(template), postgres.Options{})
	if err != nil {
		return fail(err)
	}
	if err := s.Close(); err != nil {
		return fail(err)
	}
	return m.Run()
}

func TestStoreKeepsItsPromises(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, database(t)) })
}

func TestStoreKeepsItsPromisesToSeveralServers(t *testing.T) {
	storetest.RunShared(t, func(t *testing.T) (a, b store.Store) {
		dsn := database(t)
		return open(t, dsn), open(t, dsn)
	})
}

var (
	databases atomic.Int64
	// idle holds databases that were emptied after a test; making one takes long.
	idle = make(chan string, 100)
)

// database is an empty database with the newest schema, for one test.
func database(t testing.TB) string {
	t.Helper()
	var name string
	select {
	case name = <-idle:
	default:
		name = createDB(t, template)
	}
	t.Cleanup(func() {
		if err := server.Exec(context.Background(), name, empty); err != nil {
			t.Error(err)
			return
		}
		idle <- name
	})
	return server.DSN(name)
}

// empty removes every row but those that come with the schema.
const empty = `DELETE FROM sessions; DELETE FROM events; DELETE FROM prompts; DELETE FROM ops;
	DELETE FROM points; DELETE FROM names; DELETE FROM chunks; DELETE FROM states; DELETE FROM labels; DELETE FROM removed; DELETE FROM servers; DELETE FROM keys;
	DELETE FROM documents; DELETE FROM document_versions`

func createDB(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	if err := server.CreateDB(t.Context(), name, template); err != nil {
		t.Fatal(err)
	}
	return name
}

// open opens a store that is closed when the test ends, if not before.
func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, s) })
	return s
}

func shut(t testing.TB, s *postgres.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
