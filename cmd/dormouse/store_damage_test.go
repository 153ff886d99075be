package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// edit changes the database of a data directory directly.
func edit(t *testing.T, data string, texts ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, "dormouse.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range texts {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

const ofOpen = ` WHERE session = (SELECT key FROM sessions WHERE id = 'sesn_4open')`

// What is derived is of no use to an export, and a rebuild is there to derive it anew.
func TestRowsThatAreNotWhatWasWrittenStopNeitherAnExportNorARebuild(t *testing.T) {
	for name, change := range map[string]string{
		"metrics":  `UPDATE sessions SET metrics = 'z' || substr(metrics, 2) WHERE id = 'sesn_4open'`,
		"tags":     `UPDATE labels SET tags = 'z'` + ofOpen,
		"metadata": `UPDATE labels SET metadata = 'z'` + ofOpen,
		"last_seq": `UPDATE sessions SET last_seq = 2 WHERE id = 'sesn_4open'`,
		"ops":      `UPDATE ops SET op = 'z' || substr(op, 2)` + ofOpen,
	} {
		t.Run(name, func(t *testing.T) {
			data, dir := transfertest.OldData(t), t.TempDir()
			before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
			edit(t, data, change)
			out, errs := storeCommand(t, 0, data, "export", filepath.Join(dir, "archive"))
			if !strings.Contains(out, "exported 6 sessions") {
				t.Errorf("export said %s%s", out, errs)
			}
			out, errs = storeCommand(t, exitError, data, "rebuild", "--check")
			if out != "rebuild: sessions=6 changed=1\n" || !strings.Contains(errs, string(transfertest.Working)) {
				t.Errorf("rebuild --check said %s%s", out, errs)
			}
			storeCommand(t, 0, data, "rebuild")
			if out, errs := storeCommand(t, 0, data, "rebuild", "--check"); out != "rebuild: sessions=6 changed=0\n" {
				t.Errorf("after the rebuild: %s%s", out, errs)
			}
			if diff := cmp.Diff(before, transfertest.Contents(t, transfertest.Open(t, data)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("it is not as it was (-before +after):\n%s", diff)
			}
		})
	}
}

func TestALogThatEndsBeforeItsRowSaysIsExportedAsFarAsItGoesAndNotLaidOut(t *testing.T) {
	for name, change := range map[string]string{
		"the last event is lost": `DELETE FROM events` + ofOpen + ` AND seq = (SELECT last_seq FROM sessions WHERE id = 'sesn_4open')`,
		"all events are lost":    `DELETE FROM events` + ofOpen,
		"the row has a bit more": `UPDATE sessions SET last_seq = last_seq + 64 WHERE id = 'sesn_4open'`,
	} {
		t.Run(name, func(t *testing.T) {
			data, file, copied := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
			edit(t, data, change)
			out, errs := storeCommand(t, exitNeedsAttention, data, "export", file)
			if !strings.Contains(errs, string(transfertest.Working)+": its log ends at event") || !strings.Contains(out, "exported 6 sessions") {
				t.Errorf("export said %s%s", out, errs)
			}
			out, errs = storeCommand(t, exitError, data, "rebuild")
			if !strings.Contains(out, "failed=1") || !strings.Contains(errs, string(transfertest.Working)+": cannot be laid out: its log ends at event") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			if name == "all events are lost" {
				return // nothing of it can be imported
			}
			storeCommand(t, exitNeedsAttention, copied, "import", file) // stored, and no server runs it
			was, is := transfertest.Log(t, transfertest.Open(t, data), transfertest.Working), transfertest.Log(t, transfertest.Open(t, copied), transfertest.Working)
			if n := len(is); n != len(was)+1 || is[n-1].Type != dormouse.EventDamaged {
				t.Errorf("%d events were imported, the last is %s; there were %d", n, is[n-1].Type, len(was))
			}
		})
	}
}

// A user who goes back to an older program needs the other sessions all the more.
func TestASessionOfANewerProgramIsLeftOutOfAnExportAndNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change, says, exports string
		imports               int
	}{
		"as its row says": {
			`UPDATE sessions SET needs = 2 WHERE id = 'sesn_4open'`, string(transfertest.Working) + ": is not in the archive", "exported 5 sessions", 0,
		},
		"though its row says nothing": {
			`UPDATE events SET sum = NULL, type = 'session.dreamt'` + ofOpen + ` AND seq = 4`, string(transfertest.Working) + ": event 4 and what follows it are not in the archive", "exported 6 sessions", exitNeedsAttention,
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, file, copied := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
			edit(t, data, c.change)
			out, errs := storeCommand(t, exitNeedsAttention, data, "export", file)
			if !strings.Contains(errs, c.says) || !strings.Contains(out, c.exports) {
				t.Errorf("export said %s%s", out, errs)
			}
			storeCommand(t, c.imports, copied, "import", file)
			if got := transfertest.Contents(t, transfertest.Open(t, copied)); got[transfertest.Long].Rows.Session.Seq < transfer.PageEvents || got[transfertest.Lapsed].Rows.Session.Seq == 0 {
				t.Errorf("the others are not all there: %d sessions", len(got))
			}
		})
	}
}
