package sqlite_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// unread are the ways in which a column of an index row is not what was written. A
// flipped bit asks neither what the schema allows nor of which type a column is.
var unread = map[string]string{
	"metrics":                  `UPDATE sessions SET metrics = 'z' || substr(metrics, 2)`,
	"metrics of another shape": `UPDATE sessions SET metrics = '[]'`,
	"tags":                     `UPDATE labels SET tags = 'z' || substr(tags, 2)`,
	"metadata":                 `UPDATE labels SET metadata = 'z' || substr(metadata, 2)`,
	"last_seq below zero":      `UPDATE sessions SET last_seq = -123`,
	"last_seq no number":       `UPDATE sessions SET last_seq = 'abc'`,
	"created too late":         `UPDATE sessions SET created = created + (1 << 58)`,
	"created no time":          `UPDATE sessions SET created = 'abc'`,
	"updated too late":         `UPDATE sessions SET updated = updated + (1 << 58)`,
	"due no time":              `UPDATE sessions SET due = 'abc'`,
	"needs no number":          `UPDATE sessions SET needs = x'00'`,
	"phase other bytes":        `UPDATE sessions SET phase = CAST(phase AS BLOB)`,
}

// refused reports whether nothing can be appended to a session before it is rebuilt: its
// position is unknown, or SQLite does not write a row that has a value of another type.
func refused(name string) bool {
	return strings.HasPrefix(name, "last_seq") || strings.Contains(name, " no ") || strings.Contains(name, "bytes")
}

// spoil changes the rows of the second session behind the store's back.
func spoil(t *testing.T, dir, change string) {
	t.Helper()
	db := raw(t, dir)
	db.SetMaxOpenConns(1)
	const which = ` (SELECT key FROM sessions WHERE id = 'sesn_0002')`
	where := ` WHERE key = ` + which
	if strings.HasPrefix(change, "UPDATE labels") {
		where = ` WHERE session = ` + which
	}
	schema := query[string](t, db, `SELECT sql FROM sqlite_schema WHERE name = 'sessions'`)
	for _, text := range []string{
		`PRAGMA ignore_check_constraints = ON`, `PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'sessions'`,
		`PRAGMA writable_schema = RESET`,
		change + where,
		`PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = '` + strings.ReplaceAll(schema, "'", "''") + `' WHERE name = 'sessions'`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// three makes three sessions with everything that an index row has.
func three(t *testing.T, s *sqlite.Store) (second *writer) {
	t.Helper()
	for n := 1; n <= 3; n++ {
		w := create(t, s, dormouse.SessionID("sesn_000"+string(rune('0'+n))), func(b *store.Batch) {
			b.Rows.Session.Tags, b.Rows.Session.Metadata = []string{"red"}, map[string]string{"k": "v"}
			b.Rows.Session.Due, b.Rows.Session.Metrics.Messages, b.Rows.Session.Needs = start, 7, 1
		})
		w.index.Tags, w.index.Metadata, w.index.Due, w.index.Metrics.Messages, w.index.Needs = []string{"red"}, map[string]string{"k": "v"}, start, 7, 1
		if n == 2 {
			second = w
		}
	}
	return second
}

func TestAnIndexRowThatIsNotWhatWasWrittenMustBeNoErrorForItsSessionOrForOthers(t *testing.T) {
	for name, change := range unread {
		t.Run(name, func(t *testing.T) {
			column, _, _ := strings.Cut(name, " ")
			dir := t.TempDir()
			s := open(t, dir)
			w := three(t, s)
			shut(t, s)
			spoil(t, dir, change)
			s = open(t, dir)
			defer func() { shut(t, s) }()
			ctx := t.Context()

			one, err := s.Session(ctx, w.index.Session)
			if err != nil || one.CorruptColumns != column || !strings.Contains(one.Damage, column) {
				t.Errorf("it is %+v, %v; want that %s cannot be read", one, err, column)
			}
			for what, q := range map[string]store.Query{
				"all": {}, "by tag": {Tags: []string{"red"}}, "by metadata": {Metadata: map[string]string{"k": "v"}}, "the oldest first": {Oldest: true},
			} {
				q.Tenant, q.Limit = "acme", 10
				found, err := s.Sessions(ctx, q)
				if n := len(found); err != nil || n < 2 || n == 2 && !strings.HasPrefix(what, "by") {
					t.Errorf("%s: %d sessions, %v", what, n, err)
				}
				if _, err := json.Marshal(found); err != nil {
					t.Errorf("%s: cannot be encoded: %v", what, err)
				}
				var paged int
				for q.Limit = 1; ; paged++ {
					page, err := s.Sessions(ctx, q)
					if err != nil {
						t.Fatalf("%s, page after %q: %v", what, q.After, err)
					}
					if len(page) == 0 {
						break
					}
					q.After = page[0].Session
				}
				if paged != len(found) {
					t.Errorf("%s: %d sessions page by page, and %d at once", what, paged, len(found))
				}
			}
			if ids, err := s.All(ctx, w.index.Session, 10); err != nil || len(ids) > 2 {
				t.Errorf("all after it = %v, %v", ids, err)
			}
			if _, err := s.NextDue(ctx, start.AddDate(200, 0, 0)); err != nil {
				t.Errorf("next due: %v", err)
			}

			// It is written anew: by the next append, if anything can be appended.
			if !refused(name) {
				w.store = s
				if err := w.add(ctx, w.batch(1)); err != nil {
					t.Fatal(err)
				}
				mended(t, s, w, "an append")
				shut(t, s)
				spoil(t, dir, change)
				s = open(t, dir)
			}
			if err := s.Rebuild(ctx, w.index.Session, dormouse.Rows{Session: w.index}); err != nil {
				t.Fatal(err)
			}
			mended(t, s, w, "a rebuild")
		})
	}
}

func mended(t *testing.T, s store.Store, w *writer, after string) {
	t.Helper()
	got, err := s.Session(t.Context(), w.index.Session)
	if diff := cmp.Diff(w.index, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("after %s: %v (-want +got)\n%s", after, err, diff)
	}
}

// A server that has a session loaded writes only what it knows to have changed.
func TestTheNextAppendAfterAMarkWritesTheIndexRowAnew(t *testing.T) {
	for name, change := range unread {
		if refused(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			defer shut(t, s)
			w := three(t, s)
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Fatal(err)
			}
			spoil(t, dir, change)
			if err := s.Mark(t.Context(), w.index.Session, w.epoch, ""); err != nil {
				t.Fatal(err)
			}
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Fatal(err)
			}
			mended(t, s, w, "a mark and an append")
		})
	}
}

func TestARebuildMendsARowThatSaysLessThanTheLogHasAndNoneThatSaysMore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := three(t, s)
	if err := w.add(t.Context(), w.batch(4)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change string
		want   error
	}{
		{`UPDATE sessions SET last_seq = 1`, nil},
		{`UPDATE sessions SET last_seq = last_seq + 64`, dormouse.ErrConflict},
	} {
		shut(t, s)
		spoil(t, dir, c.change)
		s = open(t, dir)
		if err := s.Rebuild(t.Context(), w.index.Session, dormouse.Rows{Session: w.index}); !errors.Is(err, c.want) {
			t.Errorf("%s: rebuild = %v, want %v", c.change, err, c.want)
		}
		if c.want == nil {
			mended(t, s, w, c.change)
		}
	}
	shut(t, s)
}

func TestAnOpThatIsNotWhatWasWrittenHidesNoOther(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := three(t, s)
	b := w.batch(1)
	for _, id := range []dormouse.OpID{"op_1", "op_2"} {
		b.Rows.Ops = append(b.Rows.Ops, dormouse.OpRecord{Op: dormouse.Op{ID: id, Kind: dormouse.OpModel}, Status: dormouse.OpOpen, Started: start})
	}
	b.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: []dormouse.Digest{"sha256:a"}}}
	if err := w.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	db := raw(t, dir)
	if _, err := db.ExecContext(t.Context(), `UPDATE ops SET op = 'z' || substr(op, 2) WHERE id = 'op_1'; UPDATE points SET digests = 'z'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer shut(t, s)
	ops, err := s.Ops(t.Context(), w.index.Session, 10)
	if err != nil || len(ops) != 2 || ops[0].Kind != dormouse.OpModel || ops[1].ID != "op_1" || ops[1].Kind != "" {
		t.Errorf("ops = %+v, %v", ops, err)
	}
	w.store = s
	b = w.batch(1)
	b.Rows.Released = []dormouse.SnapshotID{"snap_1"}
	if err := w.add(t.Context(), b); err != nil {
		t.Errorf("a point whose names cannot be read is not let go of: %v", err)
	}
}
