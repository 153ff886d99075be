package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// doc is the nth document of a kind.
func doc(kind string, n int) store.Document {
	return store.Document{
		Tenant: "acme", Kind: kind, ID: fmt.Sprintf("%s_%04d", kind, n), Version: 1, Revision: 1,
		Created: at(n), Updated: at(n), Body: fmt.Appendf(nil, `{"n": %d, "text":"Grüße 🐭\u0000",  "a":1,"a":2}`, n),
	}
}

func insert(t *testing.T, s store.Documents, d store.Document) store.Document {
	t.Helper()
	if err := s.Insert(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// replace changes a document and returns it as it must be now.
func replace(t *testing.T, s store.Documents, d store.Document, keep bool, change func(*store.Document)) store.Document {
	t.Helper()
	change(&d)
	if err := s.Replace(t.Context(), d, keep); err != nil {
		t.Fatal(err)
	}
	d.Revision++
	return d
}

// wantDocument fails unless a document is there as it is wanted.
func wantDocument(t *testing.T, s store.Documents, want store.Document) {
	t.Helper()
	got, err := s.Document(t.Context(), want.Ref())
	if err != nil {
		t.Errorf("document %s: %v", want.Ref(), err)
		return
	}
	equal(t, "document", got, want)
}

// wantVersions fails unless exactly these can be read, the highest first.
func wantVersions(t *testing.T, s store.Documents, want ...store.Document) {
	t.Helper()
	ref := want[0].Ref()
	got, err := s.DocumentVersions(t.Context(), ref, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "versions", got, want)
	for _, w := range want {
		one, err := s.DocumentVersion(t.Context(), ref, w.Version)
		if err != nil {
			t.Errorf("version %d: %v", w.Version, err)
		}
		equal(t, "version", one, w)
	}
}

func testDocuments(t *testing.T, fresh opener) {
	t.Run("a document comes back as it was given and its body byte for byte", fresh(func(t *testing.T, s store.Store) {
		whole := doc("agent", 1)
		whole.Name, whole.Version, whole.Archived = "a name 🐭 '%_", 7, at(5)
		large := doc("agent", 2)
		large.Tenant, large.Body = "", append(append([]byte(`"`), bytes.Repeat([]byte("x"), store.MaxDocument-2)...), '"')
		odd := doc("agent", 3)
		odd.Body = []byte("\"\xff\" ")
		for _, d := range []store.Document{whole, large, odd} {
			wantDocument(t, s, insert(t, s, d))
			wantVersions(t, s, d)
		}
		_, err := s.DocumentVersion(t.Context(), whole.Ref(), 6)
		wantErr(t, "a version that never was", err, dormouse.ErrNotFound)
	}))

	t.Run("insert makes revision 1 whatever it is given", fresh(func(t *testing.T, s store.Store) {
		d := doc("agent", 1)
		d.Revision = 9
		insert(t, s, d)
		d.Revision = 1
		wantDocument(t, s, d)
	}))

	t.Run("insert of an id or a name that is taken must be refused with ErrConflict", fresh(func(t *testing.T, s store.Store) {
		named := doc("environment", 1)
		named.Name = "prod"
		insert(t, s, named)
		same := doc("environment", 1)
		same.Body = []byte(`"other"`)
		wantErr(t, "the same id", s.Insert(t.Context(), same), dormouse.ErrConflict)
		again := doc("environment", 2)
		again.Name = "prod"
		wantErr(t, "the same name", s.Insert(t.Context(), again), dormouse.ErrConflict)
		wantDocument(t, s, named)
		_, err := s.Document(t.Context(), again.Ref())
		wantErr(t, "what was refused", err, dormouse.ErrNotFound)

		again.Name = "Prod"
		insert(t, s, again)
		for n, change := range []func(*store.Document){
			func(d *store.Document) { d.Tenant = "umbrella" },
			func(d *store.Document) { d.Kind = "vault" },
			func(d *store.Document) { d.ID, d.Name = "environment_x", "" },
			func(d *store.Document) { d.ID, d.Name = "environment_y", "" },
		} {
			other := named
			change(&other)
			if err := s.Insert(t.Context(), other); err != nil {
				t.Errorf("other document %d: %v", n, err)
			}
		}
	}))

	t.Run("replace must be refused if the document is at another revision or of a higher version", fresh(func(t *testing.T, s store.Store) {
		d := insert(t, s, doc("agent", 1))
		wantErr(t, "replace of nothing", s.Replace(t.Context(), doc("agent", 2), true), dormouse.ErrNotFound)
		for _, revision := range []int{0, 2} {
			stale := d
			stale.Revision, stale.Body = revision, []byte(`"stale"`)
			wantErr(t, fmt.Sprintf("replace of revision %d", revision), s.Replace(t.Context(), stale, true), dormouse.ErrConflict)
		}
		wantVersions(t, s, d)
		now := replace(t, s, d, false, func(d *store.Document) { d.Version, d.Updated, d.Body = 3, at(9), []byte(`"new"`) })
		wantVersions(t, s, now)
		wantErr(t, "replace of the revision before", s.Replace(t.Context(), d, true), dormouse.ErrConflict)
		lower := now
		lower.Version = 2
		wantErr(t, "a version that falls", s.Replace(t.Context(), lower, true), dormouse.ErrConflict)
		wantVersions(t, s, now)
	}))

	t.Run("what archives without another version is fenced like the rest", fresh(func(t *testing.T, s store.Store) {
		d := insert(t, s, doc("agent", 1))
		archived := replace(t, s, d, true, func(d *store.Document) { d.Archived = at(7) })
		wantVersions(t, s, archived)
		late := d
		late.Version = 2
		wantErr(t, "replace by who has not seen it", s.Replace(t.Context(), late, true), dormouse.ErrConflict)
		wantVersions(t, s, archived)
	}))

	t.Run("when it was created must stay as it is", fresh(func(t *testing.T, s store.Store) {
		d := insert(t, s, doc("agent", 1))
		now := replace(t, s, d, false, func(d *store.Document) { d.Created = at(99) })
		now.Created = d.Created
		wantDocument(t, s, now)
	}))

	t.Run("the version before must stay readable if keep is true and is gone if not", fresh(func(t *testing.T, s store.Store) {
		bump := func(d *store.Document) {
			d.Version++
			d.Name, d.Updated, d.Body = fmt.Sprint("name ", d.Version), at(100+d.Version), fmt.Appendf(nil, `{"v":%d}`, d.Version)
		}
		one := insert(t, s, doc("agent", 1))
		two := replace(t, s, one, true, bump)
		three := replace(t, s, two, true, bump)
		wantVersions(t, s, three, two, one)
		four := replace(t, s, three, false, bump)
		wantVersions(t, s, four, two, one)
		other := insert(t, s, doc("agent", 2))
		wantVersions(t, s, other)
		wantVersions(t, s, four, two, one)
	}))

	t.Run("a name that another document has must be refused also when it is taken later", fresh(func(t *testing.T, s store.Store) {
		a, b := doc("environment", 1), doc("environment", 2)
		a.Name, b.Name = "a", "b"
		insert(t, s, a)
		insert(t, s, b)
		taking := b
		taking.Name, taking.Version = "a", 2
		wantErr(t, "replace", s.Replace(t.Context(), taking, true), dormouse.ErrConflict)
		wantVersions(t, s, b)
		a = replace(t, s, a, true, func(d *store.Document) { d.Version, d.Name = 2, "c" }) // and the version before claims nothing
		b = replace(t, s, b, false, func(d *store.Document) { d.Name = "a" })
		wantDocument(t, s, a)
		wantDocument(t, s, b)
	}))

	t.Run("remove must make a document be gone with all its versions and its id and name free", fresh(func(t *testing.T, s store.Store) {
		d := doc("environment", 1)
		d.Name = "prod"
		wantErr(t, "remove of nothing", s.Remove(t.Context(), d.Ref()), dormouse.ErrNotFound)
		insert(t, s, d)
		replace(t, s, d, true, func(d *store.Document) { d.Version = 2 })
		if err := s.Remove(t.Context(), d.Ref()); err != nil {
			t.Fatal(err)
		}
		_, err := s.Document(t.Context(), d.Ref())
		wantErr(t, "document", err, dormouse.ErrNotFound)
		_, err = s.DocumentVersion(t.Context(), d.Ref(), 1)
		wantErr(t, "version", err, dormouse.ErrNotFound)
		_, err = s.DocumentVersions(t.Context(), d.Ref(), 0, 9)
		wantErr(t, "versions", err, dormouse.ErrNotFound)
		wantErr(t, "remove again", s.Remove(t.Context(), d.Ref()), dormouse.ErrNotFound)
		d.Version = 5
		insert(t, s, d)
		wantVersions(t, s, d)
	}))

	t.Run("what is archived keeps its name", fresh(func(t *testing.T, s store.Store) {
		d, other := doc("environment", 1), doc("environment", 2)
		d.Name, other.Name = "prod", "prod"
		insert(t, s, d)
		replace(t, s, d, false, func(d *store.Document) { d.Archived = at(9) })
		wantErr(t, "insert", s.Insert(t.Context(), other), dormouse.ErrConflict)
		if err := s.Remove(t.Context(), d.Ref()); err != nil {
			t.Fatal(err)
		}
		insert(t, s, other)
	}))

	t.Run("of many who replace one revision exactly one wins", fresh(func(t *testing.T, s store.Store) { testReplaceRace(t, s, s) }))

	t.Run("a document that not every store could keep is refused", fresh(func(t *testing.T, s store.Store) {
		for what, spoil := range map[string]func(*store.Document){
			"no kind":       func(d *store.Document) { d.Kind = "" },
			"no id":         func(d *store.Document) { d.ID = "" },
			"no version":    func(d *store.Document) { d.Version = 0 },
			"no time":       func(d *store.Document) { d.Updated = d.Archived },
			"no body":       func(d *store.Document) { d.Body = nil },
			"no JSON":       func(d *store.Document) { d.Body = []byte("{") },
			"NUL in a name": func(d *store.Document) { d.Name = "a\x00" },
			"odd text":      func(d *store.Document) { d.Tenant = "\xff" },
		} {
			d := doc("agent", 1)
			spoil(&d)
			for verb, write := range writesOf(s) {
				wantErr(t, verb+" with "+what, write(t, d), dormouse.ErrInvalid)
			}
		}
		for what, spoil := range map[string]func(*store.Document){
			"long id":    func(d *store.Document) { d.ID = strings.Repeat("x", store.MaxDocumentRef+1) },
			"long name":  func(d *store.Document) { d.Name = strings.Repeat("x", store.MaxDocumentName+1) },
			"large body": func(d *store.Document) { d.Body = bytes.Repeat([]byte("1"), store.MaxDocument+1) },
		} {
			d := doc("agent", 1)
			spoil(&d)
			for verb, write := range writesOf(s) {
				wantErr(t, verb+" with "+what, write(t, d), dormouse.ErrTooLarge)
			}
		}
		longest := doc("agent", 1)
		longest.Tenant, longest.Kind = strings.Repeat("t", store.MaxDocumentRef), strings.Repeat("k", store.MaxDocumentRef)
		longest.ID, longest.Name = strings.Repeat("i", store.MaxDocumentRef), strings.Repeat("n", store.MaxDocumentName)
		wantDocument(t, s, insert(t, s, longest))
	}))
}

// writesOf is the ways to write a document.
func writesOf(s store.Documents) map[string]func(*testing.T, store.Document) error {
	return map[string]func(*testing.T, store.Document) error{
		"insert":  func(t *testing.T, d store.Document) error { return s.Insert(t.Context(), d) },
		"replace": func(t *testing.T, d store.Document) error { return s.Replace(t.Context(), d, true) },
		"carry":   func(t *testing.T, d store.Document) error { return s.InsertVersion(t.Context(), d) },
	}
}

// testReplaceRace lets many race for each next version through two views of a
// store, and for a name.
func testReplaceRace(t *testing.T, a, b store.Documents) {
	const racers, rounds = 8, 10
	d := insert(t, a, doc("agent", 1))
	want := []store.Document{d}
	race := func(do func(n int, s store.Documents) error) (winner int) {
		t.Helper()
		var all sync.WaitGroup
		var won, at atomic.Int64
		for n := range racers {
			all.Go(func() {
				err := do(n, []store.Documents{a, b}[n%2])
				switch {
				case err == nil:
					won.Add(1)
					at.Store(int64(n))
				case !errors.Is(err, dormouse.ErrConflict):
					t.Errorf("a loser was told %v", err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d of %d won", won.Load(), racers)
		}
		return int(at.Load())
	}
	for range rounds {
		next := d
		next.Version++
		body := func(n int) []byte { return fmt.Appendf(nil, `{"by":%d}`, n) }
		next.Body = body(race(func(n int, s store.Documents) error {
			mine := next
			mine.Body = body(n)
			return s.Replace(t.Context(), mine, true)
		}))
		next.Revision++
		d, want = next, append([]store.Document{next}, want...)
	}
	wantVersions(t, a, want...)
	race(func(n int, s store.Documents) error {
		mine := doc("environment", n)
		mine.Name = "prod"
		return s.Insert(t.Context(), mine)
	})
}
