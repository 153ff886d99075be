//go:build linux

package e2e

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// edit changes the database while no server has it.
func (w *world) edit(statement string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.Data, "dormouse.db"))
	must(w.t, err)
	_, err = db.ExecContext(w.ctx, statement, args...)
	must(w.t, errors.Join(err, db.Close()))
}

// shownDamage is what is said of a session that is damaged, alone and among others.
func (a *actor) shownDamage() (alone, listed string) {
	a.w.t.Helper()
	var one struct {
		Damage string `json:"damage"`
	}
	must(a.w.t, a.w.Get(a.w.ctx, a.Path(""), &one))
	var all struct {
		Sessions []struct {
			Session dormouse.SessionID `json:"session"`
			Damage  string             `json:"damage"`
		} `json:"sessions"`
	}
	must(a.w.t, a.w.Get(a.w.ctx, "/api/sessions?limit=200", &all))
	for _, s := range all.Sessions {
		if s.Session == a.ID {
			listed = s.Damage
		}
	}
	return one.Damage, listed
}

// runs reports whether a process has a text in its command line.
func runs(text string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(text)) {
			return true
		}
	}
	return false
}

// TestB12: a byte of the log flips. That session says so and can be exported, ended and
// deleted, what runs in it is ended, and the others go on. When the byte is as it was,
// so is the session.
func TestB12FlippedByteOfALogLeavesASessionThatCanBeEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *rig.Server) { s.Store = rig.Store{} })
	other, mends, ends := w.create(cold), w.create(cold), w.createUnseen(nil)
	mends.send("before", mends.script(rig.Say("before")))
	mends.rests()
	work := fmt.Sprintf("sleep\x003600.%d", time.Now().UnixNano()) // as its command line has it
	ends.send("at work", ends.script(rig.Bash(strings.ReplaceAll(work, "\x00", " ")), rig.Say("never said")))
	w.until("the command runs", func() bool { return runs(work) })

	const first = ` WHERE seq = 1 AND session = (SELECT key FROM sessions WHERE id = ?)`
	flip := func(a *actor, from, to string) {
		w.edit(`UPDATE events SET payload = replace(payload, ?, ?)`+first, from, to, a.ID)
	}
	archive := filepath.Join(w.Data, "archive")
	w.kill(func() {
		w.edit(`DELETE FROM states`)
		flip(mends, `"title"`, `"titlf"`)
		flip(ends, `"title"`, `"titlf"`)
		out, err := w.command("store", "export", archive).CombinedOutput()
		if _, there := os.Stat(archive); err == nil || there != nil || !bytes.Contains(out, []byte("event 1 is damaged")) {
			t.Errorf("export: %v, %v\n%s; want an archive, and that it is not whole", err, there, out)
		}
	})
	for _, a := range []*actor{mends, ends} {
		refused(t, a.Command(w.ctx, "prompts", options{"content": "nobody can know", "id": "later"}), http.StatusConflict, "damaged")
		w.until("it is listed as damaged", func() bool {
			alone, listed := a.shownDamage()
			return strings.Contains(alone, "event 1") && alone == listed
		})
	}
	w.until("its processes are ended", func() bool { return !runs(work) })
	other.send("one", other.script(rig.Say("undisturbed")))
	other.rests()

	must(t, ends.Command(w.ctx, "terminate", options{}))
	if phase := ends.show().Phase; phase != dormouse.PhaseTerminated {
		t.Errorf("it is %s", phase)
	}
	_, err := w.Once(w.ctx, http.MethodDelete, ends.Path(""), nil, nil)
	must(t, err)
	w.until("it is deleted", func() bool {
		_, err := w.Once(w.ctx, http.MethodGet, ends.Path(""), nil, nil)
		r := rig.Refused(err)
		return r != nil && r.Status == http.StatusNotFound
	})

	w.kill(func() { flip(mends, `"titlf"`, `"title"`) })
	mends.send("later", mends.script(rig.Say("here again")))
	mends.rests()
	if alone, listed := mends.shownDamage(); alone != "" || listed != "" {
		t.Errorf("it still shows %q and %q", alone, listed)
	}
}
