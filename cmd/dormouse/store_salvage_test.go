package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// spoil has change work on the last page of rows of a table or index, in the file.
func spoil(t *testing.T, data, name string, change func(page []byte)) {
	t.Helper()
	spoilAll(t, data, name, func(pages [][]byte) { change(pages[len(pages)-1]) })
}

// spoilAll has change work on all pages of rows of a table or index, in their order.
func spoilAll(t *testing.T, data, name string, change func(pages [][]byte)) {
	t.Helper()
	edit(t, data, `PRAGMA wal_checkpoint(TRUNCATE)`)
	path := filepath.Join(data, "dormouse.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT pageno, pgsize FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path`, name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var pages [][]byte
	for rows.Next() {
		var number, size int64
		if err := rows.Scan(&number, &size); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, b[(number-1)*size:number*size])
	}
	if err := errors.Join(rows.Err(), rows.Close(), db.Close()); err != nil || len(pages) == 0 {
		t.Fatalf("%d pages of %s, %v", len(pages), name, err)
	}
	change(pages)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// zero is a page that was never written.
func zero(page []byte) { clear(page) }

// flip changes a byte of every third row of a page, in its middle.
func flip(page []byte) {
	for i := range int(page[3])<<8 | int(page[4]) {
		at := int(page[8+2*i])<<8 | int(page[9+2*i])
		if i%3 == 0 && at+14 < len(page) {
			page[at+14] ^= 0x15
		}
	}
}

const rebuildHint = `run "dormouse store rebuild"`

func TestCorruptPagesAreSaidAndRebuiltFromTheLogs(t *testing.T) {
	spoiled := map[string]func([]byte){"sqlite_autoindex_sessions_1": flip, "sessions_by_age": flip}
	for _, name := range []string{
		"sessions", "sessions_by_tenant", "sessions_by_owner", "sessions_due", "labels", "prompts", "sqlite_autoindex_prompts_1",
		"ops", "sqlite_autoindex_ops_1", "client_ids", "states", "points", "names", "removed", "checks",
	} {
		spoiled[name] = zero
	}
	before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
	for name, change := range spoiled {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			spoil(t, data, name, change)
			if s, err := openStore(t.Context(), data, dsn{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), rebuildHint) {
				t.Errorf("opened with %v, %v", s, err)
			}
			for _, args := range [][]string{{"export", filepath.Join(t.TempDir(), "archive")}, {"rebuild", "--check"}} {
				if out, errs := storeCommand(t, exitError, data, args...); !strings.Contains(errs, rebuildHint) {
					t.Errorf("%v said %s%s", args, out, errs)
				}
			}
			out, errs := storeCommand(t, 0, data, "rebuild")
			if !strings.Contains(out, "sessions=6") || !strings.Contains(errs, "dormouse.db-corrupt-") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			if out, errs := storeCommand(t, 0, data, "rebuild", "--check"); out != "rebuild: sessions=6 changed=0\n" {
				t.Errorf("after the rebuild: %s%s", out, errs)
			}
			after := transfertest.Contents(t, transfertest.Open(t, data))
			var epochs cmp.Options
			if name == "sessions" { // which nothing but the row has
				epochs = append(epochs, cmpopts.IgnoreFields(transfertest.Content{}, "Epoch"))
				for id := range before {
					if after[id].Epoch <= before[id].Epoch {
						t.Errorf("%s has epoch %d, had %d", id, after[id].Epoch, before[id].Epoch)
					}
				}
			}
			if diff := cmp.Diff(before, after, epochs, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("it is not as it was (-before +after):\n%s", diff)
			}
			if left, _ := filepath.Glob(filepath.Join(data, "dormouse.db-*")); len(left) != 1 && len(left) != 3 { // -wal and -shm of the open one
				t.Errorf("beside the database are %v", left)
			}
		})
	}
}

// What cannot be derived is named, and costs nothing else.
func TestRebuildNamesWhatACorruptPageHasTaken(t *testing.T) {
	before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
	for name, says := range map[string]string{"events": "lost: events", "documents": "lost: documents", "document_versions": "lost: document_versions"} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			spoil(t, data, name, zero)
			out, errs, code := runIn(t.Context(), "", "--data", data, "store", "rebuild")
			if code == 0 || !strings.Contains(errs, says) || !strings.Contains(out, "sessions=6") {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			d, damaged := transfertest.Open(t, data), 0
			for id, was := range before {
				switch digest, err := transfer.LogDigest(t.Context(), d.Store, id); {
				case strings.Contains(errs, string(id)+": cannot be laid out"):
					damaged++
				case err != nil || digest != was.Log:
					t.Errorf("%s: %v, and nobody said so", id, err)
				}
			}
			if wanted := name == "events"; wanted != (damaged > 0) || damaged == len(before) {
				t.Errorf("%d sessions are damaged", damaged)
			}
		})
	}
}

// Nothing derives documents: those that are lost, or are as they were before, have names.
func TestRebuildNamesTheDocumentsThatAreLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(data string)
		says []string
	}{
		"documents": {func(data string) { spoil(t, data, "documents", zero) }, []string{
			`agent agent_1 of tenant "local" is not there; its past up to version 20 is`, `environment env_1 of tenant "another"`, "(agent, environment)",
		}},
		"past": {func(data string) { spoilAll(t, data, "document_versions", func(pages [][]byte) { clear(pages[0]) }) }, []string{
			`document_versions: agent agent_1 of tenant "local", versions [1 2`, "(agent, environment)",
		}},
		"old page": {func(data string) {
			d := transfertest.Open(t, data)
			doc := store.Document{Tenant: "local", Kind: "agent", ID: "agent_3", Version: 1, Revision: 1, Created: time.Unix(9, 0), Updated: time.Unix(9, 0), Body: []byte(`{}`)}
			if err := d.Store.Insert(t.Context(), doc); err != nil {
				t.Fatal(err)
			}
			closeAll(t, d)
			var old []byte
			spoil(t, data, "documents", func(page []byte) { old = slices.Clone(page) })
			d = transfertest.Open(t, data)
			doc.Version, doc.Body = 2, []byte(`{"a":1}`)
			if err := d.Store.Replace(t.Context(), doc, true); err != nil {
				t.Fatal(err)
			}
			closeAll(t, d)
			spoil(t, data, "documents", func(page []byte) { copy(page, old) })
			spoil(t, data, "prompts", zero)
		}, []string{`agent agent_3 of tenant "local" is as it was in version 1, and had a later one`}},
	} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			c.lose(data)
			_, errs := salvage(t, data)
			for _, says := range c.says {
				if !strings.Contains(errs, says) {
					t.Errorf("rebuild does not say %q: %s", says, errs)
				}
			}
		})
	}
}

func closeAll(t *testing.T, d transfer.Deployment) {
	t.Helper()
	if err := d.Store.Close(); err != nil {
		t.Fatal(err)
	}
}

// A session that was deleted, of which rows are left, is not brought back.
func TestRebuildDoesNotBringBackADeletedSession(t *testing.T) {
	var old []byte
	for name, change := range map[string]func([]byte){
		"sessions_by_phase": zero, "removed": zero, "sessions_by_age": func(page []byte) { copy(page, old) },
	} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			spoil(t, data, name, func(page []byte) { old = slices.Clone(page) })
			edit(t, data, `INSERT INTO removed (session) SELECT key FROM sessions WHERE id = 'sesn_4open'`, `DELETE FROM sessions WHERE id = 'sesn_4open'`)
			spoil(t, data, name, change)
			if out, errs := storeCommand(t, 0, data, "rebuild"); !strings.Contains(out, "sessions=5") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			if _, there := transfertest.Contents(t, transfertest.Open(t, data))[transfertest.Working]; there {
				t.Error("it is there again")
			}
		})
	}
}

// fullIndexes are those that have every session.
var fullIndexes = []string{"sqlite_autoindex_sessions_1", "sessions_by_age", "sessions_by_tenant", "sessions_by_owner", "sessions_by_phase"}

// forget zeroes every page that says which sessions there are, but for their logs.
func forget(t *testing.T, data string) {
	t.Helper()
	for _, name := range append([]string{"sessions"}, fullIndexes...) {
		spoil(t, data, name, zero)
	}
}

// salvage rebuilds a corrupt database of which something is lost.
func salvage(t *testing.T, data string) (out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, errs, code := runIn(ctx, "", "--data", data, "store", "rebuild")
	if code == 0 || !strings.Contains(errs, "dormouse.db-corrupt-") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	return out, errs
}

// A session is not taken for a deleted one because nothing can be read that would name it.
func TestRebuildKeepsEveryLogIfNobodyKnowsWhichSessionsWereDeleted(t *testing.T) {
	data := transfertest.OldData(t)
	forget(t, data)
	spoil(t, data, "removed", zero)
	out, errs := salvage(t, data)
	if !strings.Contains(out, "sessions=6") || !strings.Contains(errs, "lost: sessions") || !strings.Contains(errs, "lost: removed") {
		t.Errorf("rebuild said %s%s", out, errs)
	}
}

// The next session gets no key under which there are rows of another.
func TestRebuildRemovesTheRowsThatNobodyCanName(t *testing.T) {
	for name, drop := range map[string]string{
		"log":     `DELETE FROM events WHERE seq = 1 AND session = (SELECT max(key) FROM sessions)`,
		"prompts": `DELETE FROM events WHERE session = (SELECT max(key) FROM sessions)`,
	} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			edit(t, data, drop)
			forget(t, data)
			if out, errs := salvage(t, data); !strings.Contains(out, "sessions=5") || !strings.Contains(errs, "that nobody can name") {
				t.Errorf("rebuild said %s%s", out, errs)
			}
			p := transfertest.Past{T: t, Deployment: transfertest.Open(t, data)}
			p.Create("sesn_7next")
			if prompts, err := p.Store.Prompts(t.Context(), "sesn_7next"); err != nil || len(prompts) > 0 {
				t.Errorf("it has prompts %v, %v", prompts, err)
			}
		})
	}
}

// A session that has lost its row and the end of its log does not go on from where that ends now.
func TestRebuildKnowsThatALogWentFurtherThanItDoesNow(t *testing.T) {
	before := transfertest.Contents(t, transfertest.Open(t, transfertest.OldData(t)))
	for name, lose := range map[string]func(data string){
		"in the index": func(data string) { spoil(t, data, "events", zero) },
		"in client ids": func(data string) {
			edit(t, data, `DELETE FROM prompts`, `DELETE FROM states`, `DELETE FROM events WHERE seq >= (SELECT max(seq) FROM client_ids c WHERE c.session = events.session)`)
		},
		"in prompts": func(data string) {
			edit(t, data, `DELETE FROM client_ids`, `DELETE FROM states`, `DELETE FROM events WHERE seq >= (SELECT max(seq) FROM prompts p WHERE p.session = events.session)`)
		},
		"in states": func(data string) {
			edit(t, data, `INSERT OR REPLACE INTO states (session, seq, version) SELECT session, max(seq), 1 FROM events GROUP BY session`,
				`DELETE FROM client_ids`, `DELETE FROM prompts`, `DELETE FROM events WHERE seq > 1 AND seq = (SELECT seq FROM states s WHERE s.session = events.session)`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := transfertest.OldData(t)
			lose(data)
			spoil(t, data, "sessions", zero)
			_, errs := salvage(t, data)
			d, damaged := transfertest.Open(t, data), 0
			for id, was := range before {
				switch digest, err := transfer.LogDigest(t.Context(), d.Store, id); {
				case strings.Contains(errs, string(id)+": cannot be laid out") || strings.Contains(errs, string(id)+": neither"):
					damaged++
				case err != nil || digest != was.Log:
					t.Errorf("%s: %v, and nobody said so", id, err)
				}
			}
			if damaged == 0 || damaged == len(before) {
				t.Errorf("%d sessions are damaged", damaged)
			}
		})
	}
}

// A page that is there in the place of another makes rowids fall.
func TestRebuildEndsIfAPageIsThereTwice(t *testing.T) {
	for _, at := range []int{2, 3} {
		data := transfertest.OldData(t)
		spoilAll(t, data, "events", func(pages [][]byte) {
			if len(pages) < 5 {
				t.Fatalf("%d pages", len(pages))
			}
			copy(pages[at], pages[0])
			clear(pages[at+1])
		})
		if out, errs := salvage(t, data); !strings.Contains(out, "sessions=6") || !strings.Contains(errs, "lost: events") {
			t.Errorf("rebuild said %s%s", out, errs)
		}
	}
}

// A session whose import was stopped does not run because its row is lost.
func TestRebuildDoesNotFinishAnImport(t *testing.T) {
	data := transfertest.OldData(t)
	edit(t, data, `UPDATE sessions SET phase = '' WHERE id = 'sesn_4open'`)
	spoil(t, data, "sessions", zero)
	if out, errs := salvage(t, data); !strings.Contains(out, "sessions=6") || !strings.Contains(errs, "sesn_4open: is not whole") {
		t.Errorf("rebuild said %s%s", out, errs)
	}
	if row, err := transfertest.Open(t, data).Store.Session(t.Context(), transfertest.Working); err != nil || !row.Arriving() {
		t.Errorf("it is %+v, %v", row, err)
	}
}

// Without its first pages nothing of a database can be read.
func TestADatabaseWhoseSchemaIsLostIsLeftAlone(t *testing.T) {
	data := transfertest.OldData(t)
	spoil(t, data, "schema_steps", zero)
	path := filepath.Join(data, "dormouse.db")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(t.Context(), data, dsn{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "import an archive") {
		t.Errorf("opened with %v", err)
	}
	if _, errs := storeCommand(t, exitError, data, "rebuild"); !strings.Contains(errs, "import an archive") {
		t.Errorf("rebuild said %s", errs)
	}
	if after, err := os.ReadFile(path); err != nil || dormouse.DigestOf(after) != dormouse.DigestOf(before) {
		t.Errorf("the file was changed, %v", err)
	}
}
