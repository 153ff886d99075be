//go:build linux

package e2e

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// flip changes one bit of every blob there is, or changes it back.
func (w *world) flip() {
	w.damaged = true
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.Data, "blobs", "sha256", "*", "*"))
	must(w.t, err)
	if len(files) == 0 {
		w.t.Fatal("there are no blobs")
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		must(w.t, err)
		b[len(b)/2] ^= 1
		must(w.t, os.WriteFile(path, b, 0o600))
	}
}

func TestB12FlippedBitOfAPromptCancelsItAndSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, other := w.create(nil), w.create(cold)
	wait, open := w.gate()
	a.send("busy", a.script(rig.Bash(a.marked(wait)), rig.Say("at last")))
	a.begun(1)
	a.send("flipped", a.script(rig.Say("nobody may hear this"))+large)
	a.MayCancel()
	w.kill(w.flip)
	open()
	a.reportedLost()
	a.rests()
	other.send("one", other.script(rig.Say("of no concern")))
	other.rests()
	w.flip() // so that the rest can be read
	if cancelled := only(a.log(), dormouse.PromptCancelled); len(cancelled) != 1 || !strings.Contains(string(cancelled[0].Payload), "cannot be read") {
		t.Errorf("cancelled were %s", types(cancelled))
	}
	if n := w.models.Account(a.tag).Calls().Effects; n != 2 {
		t.Errorf("the model was asked %d times, want twice for the first prompt", n)
	}
	a.send("after", a.script(rig.Say("after")))
	a.rests()
}

func TestB12FlippedBitOfHistoryIsToldAndNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	a.send("kept", a.script(rig.Say("kept"))+large)
	a.rests()
	w.kill(w.flip)
	a.reportedLost()
	a.send("later", a.script(rig.Say("later")))
	a.rests()
	w.flip() // so that the rest can be read
	if said := only(a.log(), dormouse.AgentMessage); len(said) != 2 || words(said[1]) != "later" {
		t.Errorf("said were %s", types(said))
	}
}

// reportedLost expects a history whose large payloads are shown as lost, and nothing
// of them.
func (a *actor) reportedLost() {
	a.w.t.Helper()
	var history json.RawMessage
	_, err := a.w.Once(a.w.ctx, http.MethodGet, a.Path("/events?all=true"), nil, &history)
	must(a.w.t, err)
	if text := string(history); !strings.Contains(text, `"lost":"sha256:`) || strings.Contains(text, large[:100]) {
		a.w.t.Errorf("the history shows %.2000s", text)
	}
}

// TestB16: what is committed to a file without a name is lost with the process.
// So nothing may be acknowledged that went there.
func TestB16DatabaseTakenAwayStopsTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		file string
		with []byte // what is put in its place
	}{
		{"database removed", "dormouse.db", nil},
		{"database replaced", "dormouse.db", []byte("SQLite format 3\x00")},
		{"log removed", "dormouse.db-wal", nil},
		{"log replaced", "dormouse.db-wal", []byte("not a log")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.create(cold)
			a.send("before", a.script(rig.Say("before")))
			a.rests()
			path := filepath.Join(w.Data, c.file)
			kept := path + ".kept"
			must(t, os.Link(path, kept))
			w.Hold()
			w.ends("removed or replaced", func() {
				must(t, os.Remove(path))
				if c.with != nil {
					must(t, os.WriteFile(path, c.with, 0o600))
				}
				if err := a.Command(w.ctx, "prompts", options{"content": "who knows", "id": "lost"}); !rig.Again(err) {
					t.Errorf("the prompt was answered with %v", err)
				}
			})
			must(t, os.Rename(kept, path))
			w.Resume()
			a.send("lost", "who knows")
			a.send("after", a.script(rig.Say("after")))
			a.rests()
		})
	}
}

func TestB17SecondServerIsRefusedAndDisturbsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("undisturbed")))
	a.begun(1)
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"store", "rebuild"}} {
		out, err := w.command(args...).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(w.Data)) {
			t.Errorf("dormouse %s: %v\n%s; want a refusal that names the directory", strings.Join(args, " "), err, out)
		}
	}
	open()
	a.rests()
	if n := len(only(a.log(), dormouse.AttemptStarted)); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

func TestB20OlderServerLeavesANewerDatabaseAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	a.send("one", a.script(rig.Say("one")))
	a.rests()
	step := func(statement string) {
		db, err := sql.Open("sqlite", filepath.Join(w.Data, "dormouse.db"))
		must(t, err)
		_, err = db.ExecContext(w.ctx, statement)
		must(t, errors.Join(err, db.Close()))
	}
	w.kill(func() {
		step("INSERT INTO schema_steps (version, name) VALUES (999, 'from the future')")
		out, err := w.command("serve", "--listen", "127.0.0.1:0").CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("newer")) {
			t.Errorf("serve: %v\n%s; want a refusal that says why", err, out)
		}
		step("DELETE FROM schema_steps WHERE version = 999")
	})
	a.send("two", a.script(rig.Say("two")))
	a.rests()
}

// TestB21: every step of the schema is one transaction, so that a server that
// is killed in the middle of a step, or between two, leaves whole ones.
func TestB21MigrationKilledAtEachStepIsTakenUp(t *testing.T) {
	t.Parallel()
	steps, err := filepath.Glob("../store/sqlite/migrations/*.sql")
	must(t, err)
	w := newWorld(t, func(s *rig.Server) {
		s.Binary = crashing(t)
		for n := range steps {
			for _, p := range []crash.Point{crash.MigrateBegun, crash.MigrateStepped} {
				life, err := s.Start(t.Context(), rig.Arm{Point: p}, "")
				must(t, err)
				if <-life.Done(); !life.Killed() {
					t.Errorf("at step %d the server was not killed at %s: %v", n+1, p, life.Err())
				}
			}
		}
	})
	if len(steps) == 0 || w.Lives() != 1 {
		t.Errorf("%d steps, and then %d servers", len(steps), w.Lives())
	}
	a := w.create(nil)
	a.send("one", a.script(rig.Bash(a.marked("true")), rig.Say("one")))
	a.rests()
	w.kill(func() { w.cli("store", "rebuild", "--check") })
}
