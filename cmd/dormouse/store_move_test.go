package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

func TestADeploymentMovesToPostgresAndBack(t *testing.T) {
	t.Parallel()
	at, old, between, back, dir := startDatabase(t), transfertest.OldData(t), t.TempDir(), t.TempDir(), t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	storeCommand(t, 0, old, "export", one)
	storeCommand(t, exitNeedsAttention, between, "migrate", "--check", "--store", at.value)
	storeCommand(t, 0, between, "migrate", "--store", at.value)
	if out, _ := storeCommand(t, 0, between, "import", one, "--store", at.value); !strings.Contains(out, "verified 6 sessions") || !strings.Contains(out, "verified 4 documents") {
		t.Errorf("imported: %s", out)
	}
	if out, _ := storeCommand(t, 0, between, "rebuild", "--check", "--store", at.value); out != "rebuild: sessions=6 changed=0\n" {
		t.Errorf("after the import: %s", out)
	}
	was := transfertest.Open(t, old)
	want, documents := transfertest.Contents(t, was), transfertest.Documents(t, was)
	if len(documents) != 24 {
		t.Errorf("%d versions of documents, want 24", len(documents))
	}
	d := openAt(t, between, at)
	if diff := cmp.Diff(want, transfertest.Contents(t, d), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("in PostgreSQL (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(documents, transfertest.Documents(t, d)); diff != "" {
		t.Errorf("documents in PostgreSQL (-before +after):\n%s", diff)
	}
	if err := d.Store.Close(); err != nil {
		t.Fatal(err)
	}

	storeCommand(t, 0, between, "export", two, "--store", at.value)
	a, err1 := os.ReadFile(one)
	b, err2 := os.ReadFile(two)
	if err := errors.Join(err1, err2); err != nil || string(a) != string(b) {
		t.Errorf("out of PostgreSQL comes another archive than went in, %v", err)
	}
	storeCommand(t, 0, back, "import", two)
	is := transfertest.Open(t, back)
	if diff := cmp.Diff(want, transfertest.Contents(t, is), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("back in SQLite (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(documents, transfertest.Documents(t, is)); diff != "" {
		t.Errorf("documents back in SQLite (-before +after):\n%s", diff)
	}
}

// What was at work when the old server died goes on in the new place.
func TestAServerGoesOnWithWhatWasImported(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, transfertest.OldData(t), "export", file)
	for name, where := range map[string]func() dsn{
		"SQLite":     func() dsn { return dsn{} },
		"PostgreSQL": func() dsn { return startDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			data, at := t.TempDir(), where()
			chosen := `{"store":"` + at.value + `"}`
			if err := os.WriteFile(filepath.Join(data, "config.json"), []byte(chosen), 0o600); err != nil {
				t.Fatal(err)
			}
			storeCommand(t, 0, data, "import", file)
			s := startServer(t, data, func(c *config) { c.Store, c.Lease = at, 3*time.Second })
			command := func(args ...string) string {
				t.Helper()
				out, errs, code := runIn(t.Context(), "", append([]string{"--data", data, "session"}, args...)...)
				if code != 0 {
					t.Fatalf("session %v: exit %d: %s%s", args, code, out, errs)
				}
				return out
			}
			eventually(t, "the open turn and the one behind it have ended", func() bool {
				return strings.Count(command("events", string(transfertest.Working)), "session.status_idle") == 2
			})
			events := command("events", string(transfertest.Working), "--json")
			for _, want := range []string{`once upon a`, `session.status_rescheduled`} {
				if strings.Count(events, want) != 1 {
					t.Errorf("the open turn has %q %d times: %s", want, strings.Count(events, want), events)
				}
			}
			eventually(t, "the large prompt that was queued has run", func() bool {
				return strings.Count(command("events", string(transfertest.Large)), "session.status_idle") == 2
			})
			for _, id := range []dormouse.SessionID{transfertest.Fresh, transfertest.Long, transfertest.Working} {
				if out := command("send", string(id), "and on", "--follow"); !strings.Contains(out, "No model is configured") {
					t.Errorf("%s answers %s", id, out)
				}
			}
			if out := command("show", string(transfertest.Ended)); !strings.Contains(out, "terminated") {
				t.Errorf("%s", out)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			if out, _ := storeCommand(t, 0, data, "rebuild", "--check"); !strings.HasSuffix(out, "changed=0\n") {
				t.Errorf("afterwards: %s", out)
			}
		})
	}
}

func TestServersAndStoreCommandsKeepOffEachOther(t *testing.T) {
	t.Parallel()
	at, data := startDatabase(t), t.TempDir()
	s := startServer(t, data, func(c *config) { c.Store, c.Lease, c.ServerName = at, 3*time.Second, "the one" })
	file := filepath.Join(t.TempDir(), "archive")
	for _, args := range [][]string{{"export", file}, {"rebuild"}} {
		if _, errs := storeCommand(t, exitError, data, append(args, "--store", at.value)...); !strings.Contains(errs, "in use by the one; stop it first") {
			t.Errorf("%v: said %s", args, errs)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}

	d := openAt(t, data, at)
	fleet, ok := d.Store.(store.Shared)
	if !ok {
		t.Fatal("the store is not shared")
	}
	held, release, err := transfer.Hold(t.Context(), fleet)
	if err != nil {
		t.Fatal(err)
	}
	_, errs, code := runIn(t.Context(), "", "--data", data, "serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0", "--store", at.value)
	if code != exitError || !strings.Contains(errs, "another place") {
		t.Errorf("serve: exit %d: %s", code, errs)
	}
	time.Sleep(transfer.HoldLease + transfer.HoldLease/2) // longer than a hold that is not renewed
	if err := context.Cause(held); err != nil {
		t.Errorf("held no more: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}

	// A command that was killed keeps others off for a moment and no longer.
	if _, err := fleet.Join(t.Context(), store.Server{Name: "killed", Place: transfer.HoldPlace + "x"}, transfer.HoldLease); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, 0, data, "export", file, "--store", at.value)
	if err := d.Store.Close(); err != nil {
		t.Error(err)
	}
}
