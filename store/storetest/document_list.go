package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// documents turns the pages of a query until they end.
func documents(t *testing.T, s store.Documents, q store.DocumentQuery) (found []store.Document) {
	t.Helper()
	for {
		page, err := s.Documents(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > q.Limit {
			t.Fatalf("a page of %d, want at most %d", len(page), q.Limit)
		}
		if len(page) == 0 {
			return found
		}
		found = append(found, page...)
		q.After = found[len(found)-1].ID
	}
}

func testDocumentsListed(t *testing.T, fresh opener) {
	t.Run("documents must list newest first at most q.Limit from q.After on", fresh(func(t *testing.T, s store.Store) {
		var want []store.Document
		for n := range 20 {
			d := doc("agent", n*7%20)
			d.Created = at(n / 5) // many at once, so that their ids order them
			if n%3 == 0 {
				d.Archived, d.Name = at(50), fmt.Sprint("name ", n)
			}
			want = append(want, insert(t, s, d))
			for _, other := range []store.DocumentRef{{Tenant: "umbrella", Kind: "agent", ID: d.ID}, {Tenant: "acme", Kind: "skill", ID: d.ID}} {
				o := d
				o.Tenant, o.Kind = other.Tenant, other.Kind
				insert(t, s, o)
			}
		}
		slices.SortFunc(want, func(a, b store.Document) int {
			if c := b.Created.Compare(a.Created); c != 0 {
				return c
			}
			return b.Ref().Compare(a.Ref())
		})
		holds := func(q store.DocumentQuery, keep func(store.Document) bool) {
			t.Helper()
			kept := slices.DeleteFunc(slices.Clone(want), func(d store.Document) bool {
				return !keep(d) || !q.Archived && !d.Archived.IsZero()
			})
			q.Tenant, q.Kind = "acme", "agent"
			for _, q.Limit = range []int{1, 3, 100} {
				equal(t, fmt.Sprintf("%+v", q), documents(t, s, q), kept)
			}
		}
		for _, archived := range []bool{false, true} {
			bounds := []time.Time{{}, at(-1), at(1).Add(-1), at(1), at(1).Add(1), at(3), at(4)}
			for _, low := range bounds {
				for _, high := range bounds {
					holds(store.DocumentQuery{CreatedFrom: low, CreatedUntil: high, Archived: archived}, func(d store.Document) bool {
						return (low.IsZero() || !d.Created.Before(low)) && (high.IsZero() || !d.Created.After(high))
					})
				}
			}
			for _, name := range []string{"name 3", "name 4", "NAME 3"} {
				holds(store.DocumentQuery{Name: name, Archived: archived}, func(d store.Document) bool { return d.Name == name })
			}
		}
		none, err := s.Documents(t.Context(), store.DocumentQuery{Tenant: "acme", Kind: "agent"})
		if err != nil || len(none) != 0 {
			t.Errorf("at most 0 = %v, %v", none, err)
		}
	}))

	t.Run("a q.After that is not there must be ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		d := insert(t, s, doc("agent", 1))
		for _, q := range []store.DocumentQuery{
			{Tenant: "acme", Kind: "agent", After: "agent_none"},
			{Tenant: "umbrella", Kind: "agent", After: d.ID},
			{Tenant: "acme", Kind: "skill", After: d.ID},
		} {
			q.Limit = 5
			_, err := s.Documents(t.Context(), q)
			wantErr(t, fmt.Sprintf("%+v", q), err, dormouse.ErrNotFound)
		}
	}))

	t.Run("versions are listed the highest first below the version before at most limit", fresh(func(t *testing.T, s store.Store) {
		d := insert(t, s, doc("agent", 1))
		want := []store.Document{d}
		for n := range 9 {
			d = replace(t, s, d, true, func(d *store.Document) { d.Version += 1 + n%2 })
			want = append([]store.Document{d}, want...)
		}
		for _, limit := range []int{1, 4, 10, 50} {
			var got []store.Document
			for before := 0; ; {
				page, err := s.DocumentVersions(t.Context(), d.Ref(), before, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) > limit {
					t.Fatalf("a page of %d, want at most %d", len(page), limit)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
				before = page[len(page)-1].Version
			}
			equal(t, fmt.Sprintf("pages of %d", limit), got, want)
		}
		_, err := s.DocumentVersions(t.Context(), doc("agent", 2).Ref(), 0, 5)
		wantErr(t, "versions of nothing", err, dormouse.ErrNotFound)
	}))
}

func testDocumentsCarried(t *testing.T, fresh opener) {
	t.Run("every document of every tenant is listed by tenant kind and id in the order of their bytes", fresh(func(t *testing.T, s store.Store) {
		var want []store.DocumentRef
		for n, tenant := range []string{"", "B", "a", "ä", "a b", "a_"} {
			for _, kind := range []string{"agent", "Agent", "environment"} {
				for _, id := range []string{"z", "Z", "é", "a1", "a-1"} {
					d := doc(kind, n)
					d.Tenant, d.ID = tenant, id
					want = append(want, insert(t, s, d).Ref())
				}
			}
		}
		carried := doc("agent", 77)
		if err := s.InsertVersion(t.Context(), carried); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(want, store.DocumentRef.Compare)
		for _, limit := range []int{1, 7, 1000} {
			var got []store.DocumentRef
			for after := (store.DocumentRef{}); ; after = got[len(got)-1] {
				page, err := s.DocumentRefs(t.Context(), after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			equal(t, fmt.Sprintf("pages of %d", limit), got, want)
		}
	}))

	t.Run("nobody must see a version that is carried before insert has stored its document", fresh(func(t *testing.T, s store.Store) {
		one, two, three := doc("agent", 1), doc("agent", 1), doc("agent", 1)
		two.Version, two.Name, two.Archived = 2, "a name", at(9)
		three.Version, three.Body = 3, []byte(`"three"`)
		wrong := one
		wrong.Body = []byte(`"of a carry that was stopped"`)
		for _, d := range []store.Document{wrong, one, two} {
			if err := s.InsertVersion(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Document(t.Context(), one.Ref())
		wantErr(t, "document", err, dormouse.ErrNotFound)
		_, err = s.DocumentVersion(t.Context(), one.Ref(), 1)
		wantErr(t, "version", err, dormouse.ErrNotFound)
		_, err = s.DocumentVersions(t.Context(), one.Ref(), 0, 9)
		wantErr(t, "versions", err, dormouse.ErrNotFound)
		wantErr(t, "replace", s.Replace(t.Context(), three, true), dormouse.ErrNotFound)
		wantErr(t, "remove", s.Remove(t.Context(), one.Ref()), dormouse.ErrNotFound)
		equal(t, "documents", documents(t, s, store.DocumentQuery{Tenant: "acme", Kind: "agent", Archived: true, Limit: 5}), []store.Document{})
		named := doc("agent", 2)
		named.Name = "a name"
		insert(t, s, named) // what is carried claims no name

		insert(t, s, three)
		versions, err := s.DocumentVersions(t.Context(), one.Ref(), 0, 9)
		if err != nil {
			t.Fatal(err)
		}
		for n := range versions {
			versions[n].Revision = 1 // that of a version before fences nothing
		}
		equal(t, "versions", versions, []store.Document{three, two, one})
		wantErr(t, "carry of a document that is there", s.InsertVersion(t.Context(), one), dormouse.ErrConflict)
	}))
}

// testDocumentsShared lets one server see what another wrote.
func testDocumentsShared(t *testing.T, pair pairer) {
	t.Run("what one server wrote the other reads at once", pair(func(t *testing.T, a, b server) {
		d := doc("environment", 1)
		d.Name = "prod"
		insert(t, a.Store, d)
		wantDocument(t, b.Store, d)
		d = replace(t, b.Store, d, true, func(d *store.Document) { d.Version = 2 })
		wantDocument(t, a.Store, d)
		same := doc("environment", 2)
		same.Name = "prod"
		wantErr(t, "the name on the other server", b.Insert(t.Context(), same), dormouse.ErrConflict)
		if err := a.Remove(t.Context(), d.Ref()); err != nil {
			t.Fatal(err)
		}
		_, err := b.Document(t.Context(), d.Ref())
		wantErr(t, "document", err, dormouse.ErrNotFound)
	}))
	t.Run("of many who replace one revision on two servers exactly one wins", pair(func(t *testing.T, a, b server) {
		testReplaceRace(t, a.Store, b.Store)
	}))
}
