package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// A database whose file has lost its end is corrupt, and what is left is saved.
func TestADatabaseThatIsAPageShortIsRebuilt(t *testing.T) {
	before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
	for name, short := range map[string]int64{"a page": 4096, "some bytes": 100, "pages": 5 * 4096} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			edit(t, data, `PRAGMA wal_checkpoint(TRUNCATE)`)
			path := filepath.Join(data, "dormouse.db")
			at, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, at.Size()-short); err != nil {
				t.Fatal(err)
			}
			if s, err := openStore(t.Context(), data, dsn{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), rebuildHint) {
				t.Errorf("opened with %v, %v", s, err)
			}
			out, errs := salvage(t, data)
			if !strings.Contains(out, "sessions=6") || !strings.Contains(errs, "bytes short") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			after := transfertest.Contents(t, transfertest.Open(t, data))
			for id := range before {
				if !cmp.Equal(before[id], after[id], cmpopts.EquateEmpty()) && !strings.Contains(errs, string(id)) && !strings.Contains(errs, "lost: events") {
					t.Errorf("%s is not as it was, and nobody said so: %s", id, errs)
				}
			}
		})
	}
}

// What a session names that cannot be laid out is not known: until it can be, or is
// deleted, no blob is collected as unreferenced.
func TestRebuildKeepsEveryBlobForASessionThatCannotBeLaidOut(t *testing.T) {
	for name, damage := range map[string]string{"all laid out": "", "a damaged log": `DELETE FROM events WHERE seq = 2 AND session = (SELECT key FROM sessions WHERE id = 'sesn_4open')`} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			if damage != "" {
				edit(t, data, damage)
			}
			spoil(t, data, "names", zero)
			_, errs, _ := runIn(t.Context(), "", "--data", data, "store", "rebuild")
			if failed := strings.Contains(errs, "sesn_4open: cannot be laid out"); failed != (damage != "") {
				t.Errorf("rebuild said %s", errs)
			}
			d := transfertest.Open(t, data)
			named := func() int {
				t.Helper()
				found, err := d.Store.Named(t.Context(), []dormouse.Digest{"sha256:any"})
				if err != nil {
					t.Fatal(err)
				}
				return len(found)
			}
			if n := named(); n > 0 != (damage != "") {
				t.Errorf("%d sessions may name a blob", n)
			}
			epoch, err := d.Store.Claim(t.Context(), transfertest.Working, 0)
			if err == nil {
				err = d.Store.Delete(t.Context(), transfertest.Working, epoch)
			}
			if err != nil || named() > 0 {
				t.Errorf("a deleted session names a blob, %v", err)
			}
		})
	}
}

// A corrupt database need not wait for the version that wrote it.
func TestRebuildSavesADatabaseOfAnOlderStep(t *testing.T) {
	before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
	nine := []string{`CREATE TABLE deadlines (session INTEGER, id TEXT, PRIMARY KEY (session, id)) WITHOUT ROWID`, `DELETE FROM schema_steps WHERE version > 9`}
	for step, back := range map[string][]string{
		"9": nine,
		"6": append(nine,
			`ALTER TABLE sessions DROP COLUMN needs`, `ALTER TABLE schema_steps DROP COLUMN least`, `ALTER TABLE sessions DROP COLUMN damage`,
			`ALTER TABLE events DROP COLUMN sum`, `DROP TABLE client_ids`, `DROP TABLE schema_notes`, `DELETE FROM schema_steps WHERE version > 6`),
	} {
		t.Run(step, func(t *testing.T) {
			data := transfertest.OldData(t)
			edit(t, data, back...)
			spoil(t, data, "prompts", zero)
			if out, errs := storeCommand(t, 0, data, "rebuild"); !strings.Contains(out, "sessions=6") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			if diff := cmp.Diff(before, transfertest.Contents(t, transfertest.Open(t, data)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("it is not as it was (-before +after):\n%s", diff)
			}
		})
	}
}
