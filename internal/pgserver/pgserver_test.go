package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/internal/pgserver"
)

// child tells a process this test binary starts of itself to serve for ever.
const child = "DORMOUSE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		s, err := pgserver.Start(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.DSN("postgres"))
		select {}
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestADatabaseIsMadeFromATemplateAndSurvivesARestart(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { return s.CreateDB(ctx, "first", "") },
		func() error { return s.Exec(ctx, "first", "CREATE TABLE t AS SELECT 7 AS n") },
		func() error { return s.CreateDB(ctx, "second", "first") },
		func() error { return s.DropDB(ctx, "first") },
		func() error { return s.Restart(ctx, pgserver.Immediate) },
		func() error { return s.Restart(ctx, pgserver.Fast) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := pgx.Connect(ctx, s.DSN("second"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	var n int
	if err := c.QueryRow(ctx, "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("n = %d, %v", n, err)
	}
	if err := s.Exec(ctx, "first", "SELECT 1"); err == nil {
		t.Error("the dropped database is still there")
	}
}

func TestAServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	if !line.Scan() {
		t.Fatal("no server was started")
	}
	c, err := pgx.Connect(t.Context(), line.Text())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	var dir string
	if err := c.QueryRow(t.Context(), "SHOW unix_socket_directories").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for range 500 {
		if _, err := pgx.Connect(t.Context(), line.Text()); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the server outlived the process that started it")
}
