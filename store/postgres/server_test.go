package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/postgres"
)

func TestAPoolerThatSharesConnectionsBetweenTransactionsIsRefused(t *testing.T) {
	dsn := database(t)
	if _, err := postgres.Open(t.Context(), pooled(t, dsn, "transaction"), postgres.Options{}); !errors.Is(err, postgres.ErrServer) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("open = %v, want ErrServer and the reason", err)
	}
	w := create(t, open(t, pooled(t, dsn, "session")), sessionID(1))
	if err := w.add(t.Context(), w.batch(1)); err != nil {
		t.Errorf("append through a pooler that keeps one connection per session: %v", err)
	}
}

// pooled starts a pooler before the server and says how to get through it.
func pooled(t *testing.T, dsn, mode string) string {
	t.Helper()
	dir := filepath.Join(server.Dir(), fmt.Sprintf("%s%d", mode, databases.Add(1)))
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`
[databases]
* = host=%s user=postgres
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
`, server.Dir(), dir, mode)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	stop, err := server.Run(t.Context(), "/usr/sbin/pgbouncer", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	through := strings.Replace(dsn, server.Dir(), dir, 1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), through)
		if err == nil {
			c.Close(t.Context())
			return through
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestADatabaseInAnotherEncodingIsRefused(t *testing.T) {
	name := fmt.Sprintf("latin%d", databases.Add(1))
	do(t, raw(t, server.DSN("postgres")), `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'LATIN1'`)
	_, err := postgres.Open(t.Context(), server.DSN(name), postgres.Options{})
	if !errors.Is(err, postgres.ErrServer) || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("open = %v, want ErrServer and the encoding", err)
	}
}

func TestAServerThatDoesNotSyncIsWarnedOf(t *testing.T) {
	var said bytes.Buffer
	s, err := postgres.Open(t.Context(), database(t), postgres.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	if !strings.Contains(said.String(), "fsync is off") {
		t.Errorf("the operator was told %q", said.String())
	}
}

func TestCommitsWaitForTheDiskWhateverTheDatabaseIsSetTo(t *testing.T) {
	name := createDB(t, template)
	c := raw(t, server.DSN("postgres"))
	for set, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_apply": "remote_apply"} {
		do(t, c, `ALTER DATABASE `+name+` SET synchronous_commit = `+set)
		// Each writer records what its commit waits for.
		direct := raw(t, server.DSN(name))
		do(t, direct, `CREATE TABLE IF NOT EXISTS waits (for_what text);
			CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO waits VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
			CREATE OR REPLACE TRIGGER note AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION note();
			TRUNCATE waits, sessions, events`)
		s := open(t, server.DSN(name))
		create(t, s, sessionID(1))
		shut(t, s)
		if got := query[string](t, direct, `SELECT string_agg(DISTINCT for_what, ' ') FROM waits`); got != want {
			t.Errorf("set to %s, commits wait for %q, want %q", set, got, want)
		}
	}
}

func TestADatabaseWithoutFreeConnectionsIsWaitedForAndNamed(t *testing.T) {
	dsn := database(t)
	admin := raw(t, server.DSN("postgres"))
	role := fmt.Sprintf("crowded%d", databases.Add(1))
	do(t, admin, `CREATE ROLE `+role+` LOGIN CONNECTION LIMIT 12`)
	do(t, raw(t, dsn), `GRANT ALL ON SCHEMA public TO `+role+`; GRANT ALL ON ALL TABLES IN SCHEMA public TO `+role)
	theirs := strings.Replace(dsn, "user=postgres", "user="+role, 1)
	var held []*pgx.Conn
	hold := func() {
		for {
			c, err := pgx.Connect(t.Context(), theirs)
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}
	free := func() {
		for _, c := range held {
			c.Close(context.Background())
		}
		held = nil
	}
	defer free()
	// meanwhile does something while the connections become free.
	meanwhile := func(do func()) {
		var freeing sync.WaitGroup
		freeing.Go(func() {
			time.Sleep(100 * time.Millisecond)
			free()
		})
		do()
		freeing.Wait()
	}

	hold()
	ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer leave()
	if _, err := postgres.Open(ctx, theirs, postgres.Options{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("open = %v, want that time ran out and why", err)
	}
	var s *postgres.Store
	meanwhile(func() { s = open(t, theirs) })
	w := create(t, s, sessionID(1))

	// Later, too: what finds no connection waits for one.
	do(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, role)
	hold()
	if len(held) == 0 {
		t.Fatal("nothing to hold")
	}
	meanwhile(func() {
		if err := w.add(t.Context(), w.batch(1)); err != nil {
			t.Errorf("append: %v", err)
		}
	})
	checkLog(t, s, sessionID(1), 2)
}

func TestAppendMustRefuseAFullDiskWithErrFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := filepath.Join(server.Dir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, 0), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	own(t, dir)
	c := raw(t, server.DSN("postgres"))
	do(t, c, `CREATE TABLESPACE small LOCATION '`+dir+`'`)
	do(t, c, `CREATE DATABASE small TEMPLATE `+template+` TABLESPACE small`)
	t.Cleanup(func() {
		if err := errors.Join(
			server.Exec(context.Background(), "postgres", `DROP DATABASE small`),
			server.Exec(context.Background(), "postgres", `DROP TABLESPACE small`),
		); err != nil {
			t.Error(err)
		}
	})

	s := open(t, server.DSN("small"))
	w, other := create(t, s, sessionID(1)), create(t, s, sessionID(2))
	large := []byte(`"` + strings.Repeat("x", 20_000) + `"`)
	for i := range large[1 : len(large)-1] {
		large[i+1] = 'a' + byte(i*i%23) // nothing that would be compressed away
	}
	filler := filepath.Join(dir, "filler")
	for range 2 {
		fill(t, filler)
		full := false
		for range 400 { // until what was reserved is used up
			b := w.batch(1)
			b.Events[0].Payload = large
			err := w.add(t.Context(), b)
			if errors.Is(err, dormouse.ErrFull) {
				full = true
				break
			}
			if err != nil {
				t.Fatalf("append to a full disk = %v, want ErrFull", err)
			}
		}
		if !full {
			t.Fatal("the disk was never full")
		}
		checkLog(t, s, sessionID(1), w.index.Seq)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		// Room is back, and nothing has to be restarted.
		for _, w := range []*writer{w, other} {
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Errorf("append with room again: %v", err)
			}
		}
	}
	shut(t, s)
}

// own gives a directory to the user that the server runs as.
func own(t *testing.T, dir string) {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2, os.Chown(dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	f.Close()
}
