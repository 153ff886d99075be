//go:build linux

package e2e

import (
	"bytes"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// clearPage writes zeroes over the last page of rows of a table or index.
func (w *world) clearPage(name string) {
	w.t.Helper()
	w.edit(`PRAGMA wal_checkpoint(TRUNCATE)`)
	path := filepath.Join(w.Data, "dormouse.db")
	db, err := sql.Open("sqlite", path)
	must(w.t, err)
	var number, size int64
	err = db.QueryRowContext(w.ctx, `SELECT pageno, pgsize FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path DESC LIMIT 1`, name).Scan(&number, &size)
	must(w.t, errors.Join(err, db.Close()))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(w.t, err)
	_, err = f.WriteAt(make([]byte, size), (number-1)*size)
	must(w.t, errors.Join(err, f.Close()))
}

// TestB12: a page of the database that is not of the log is lost. No server starts on it,
// and takes sessions for gone that it does not find; the one command that the error names
// brings all of them back.
func TestB12CorruptPageKeepsServersAwayUntilItIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sessions", "sqlite_autoindex_sessions_1", "ops", "client_ids"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *rig.Server) { s.Store = rig.Store{} })
			all := make([]*actor, 20)
			for i := range all {
				all[i] = w.create(cold)
				all[i].send("before", all[i].script(rig.Say("before")))
			}
			for _, a := range all {
				a.rests()
			}
			w.kill(func() {
				w.clearPage(name)
				w.doesNotStart(`run "dormouse store rebuild"`)
				if out, err := w.command("store", "export", filepath.Join(w.Data, ".tmp-archive")).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("dormouse store rebuild")) {
					t.Errorf("export: %v\n%s", err, out)
				}
				if out, err := w.command("store", "rebuild").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("sessions=20")) {
					t.Errorf("rebuild: %v\n%s", err, out)
				}
			})
			for _, a := range all {
				// The same request again is the same prompt, and another is another.
				must(t, a.Command(w.ctx, "prompts", options{"content": a.script(rig.Say("before")), "id": "before"}))
				a.send("after", a.script(rig.Say("after")))
			}
			for _, a := range all {
				a.rests()
				a.has("before", "after")
			}
		})
	}
}

// TestB12: a page of a log's index is lost. Those sessions are damaged, the others go on,
// and a rebuild brings all back: no row of the log is lost.
func TestB12CorruptPageOfTheLogsIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *rig.Server) { s.Store = rig.Store{} })
	all := make([]*actor, 20)
	for i := range all {
		all[i] = w.create(cold)
		for _, name := range []string{"before", "again", "once more"} { // more than a page of the index has room for
			all[i].send(name, all[i].script(rig.Say(name)))
		}
		all[i].rests()
	}
	w.kill(func() {
		w.edit(`DELETE FROM states`)
		w.clearPage("sqlite_autoindex_events_1")
	})
	first, last := all[0], all[len(all)-1]
	first.send("meanwhile", first.script(rig.Say("undisturbed")))
	first.rests()
	refused(t, last.Command(w.ctx, "prompts", options{"content": "nobody can know", "id": "later"}), http.StatusConflict, "damaged")
	w.kill(func() {
		if out, err := w.command("store", "rebuild").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("sessions=20")) {
			t.Errorf("rebuild: %v\n%s", err, out)
		}
	})
	for _, a := range all {
		a.send("after", a.script(rig.Say("after")))
	}
	first.rests()
	first.has("before", "again", "once more", "meanwhile", "after")
	for _, a := range all[1:] {
		a.rests()
		a.has("before", "again", "once more", "after")
	}
}
