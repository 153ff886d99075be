package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testListing(t *testing.T, fresh opener) {
	t.Run("sessions must list newest first at most q.Limit from q.After on", fresh(func(t *testing.T, s store.Store) {
		var want []dormouse.SessionID
		for n := range 10 {
			id := sessionID(99 - n) // ids run against the order
			create(t, s, id, func(b *store.Batch) { b.Rows.Index.Created = at(n) })
			want = append([]dormouse.SessionID{id}, want...)
		}
		for _, limit := range []int{1, 3, 10, 100} {
			equal(t, fmt.Sprintf("pages of %d", limit), pages(t, s, store.Query{Tenant: "acme", Limit: limit}), want)
		}
		if got := list(t, s, store.Query{Tenant: "acme"}); len(got) != 0 {
			t.Errorf("at most 0 = %v", got)
		}
	}))

	t.Run("pages are whole and do not overlap when many sessions were created at once", fresh(func(t *testing.T, s store.Store) {
		var want []dormouse.SessionID
		for n := range 20 {
			id := sessionID(n * 7 % 20)
			create(t, s, id, func(b *store.Batch) { b.Rows.Index.Created = at(n / 10) })
			want = append(want, id)
		}
		got := pages(t, s, store.Query{Tenant: "acme", Limit: 3})
		equal(t, "pages of 3", got, pages(t, s, store.Query{Tenant: "acme", Limit: 100}))
		slices.Sort(got)
		slices.Sort(want)
		equal(t, "all pages", got, want)
	}))

	t.Run("a page does not move when an older session is written", fresh(func(t *testing.T, s store.Store) {
		ws := make([]*writer, 6)
		for n := range ws {
			ws[n] = create(t, s, sessionID(n), func(b *store.Batch) { b.Rows.Index.Created = at(n) })
		}
		before := pages(t, s, store.Query{Tenant: "acme", Limit: 2})
		ws[0].append(t)
		equal(t, "pages", pages(t, s, store.Query{Tenant: "acme", Limit: 2}), before)
	}))

	t.Run("owner parent and phase select when not empty and the tenant always", fresh(func(t *testing.T, s store.Store) {
		n := 0
		var rows []store.Index
		for _, tenant := range []string{"acme", "umbrella", ""} {
			for _, owner := range []dormouse.Actor{"user:ada", "user:bob"} {
				for _, parent := range []dormouse.SessionID{"", "sesn_p", "sesn_q"} {
					for _, phase := range []dormouse.Phase{dormouse.PhaseReady, dormouse.PhaseRunning} {
						create(t, s, sessionID(n), func(b *store.Batch) {
							i := &b.Rows.Index
							i.Tenant, i.Owner, i.Parent, i.Phase, i.Created = tenant, owner, parent, phase, at(n)
							rows = append([]store.Index{*i}, rows...)
						})
						n++
					}
				}
			}
		}
		for _, tenant := range []string{"acme", "umbrella", "", "nobody"} {
			for _, owner := range []dormouse.Actor{"", "user:ada", "user:eve"} {
				for _, parent := range []dormouse.SessionID{"", "sesn_p", "sesn_x"} {
					for _, phase := range []dormouse.Phase{"", dormouse.PhaseRunning, dormouse.PhaseError} {
						q := store.Query{Tenant: tenant, Owner: owner, Parent: parent, Phase: phase, Limit: 2}
						var want []dormouse.SessionID
						for _, i := range rows {
							if i.Tenant == tenant && (owner == "" || i.Owner == owner) &&
								(parent == "" || i.Parent == parent) && (phase == "" || i.Phase == phase) {
								want = append(want, i.Session)
							}
						}
						equal(t, fmt.Sprintf("%+v", q), pages(t, s, q), want)
					}
				}
			}
		}
	}))

	t.Run("a listed row is the index row", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		w.append(t, func(b *store.Batch) { b.Rows.Index.Due = at(3) })
		equal(t, "sessions", list(t, s, store.Query{Tenant: "acme", Limit: 5}), []store.Index{w.index})
	}))

	t.Run("a q.After that the tenant does not have must be ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		create(t, s, sessionID(1))
		create(t, s, sessionID(2), func(b *store.Batch) { b.Rows.Index.Tenant = "umbrella" })
		for _, after := range []dormouse.SessionID{sessionID(2), sessionID(3)} {
			_, err := s.Sessions(t.Context(), store.Query{Tenant: "acme", After: after, Limit: 5})
			wantErr(t, string(after), err, dormouse.ErrNotFound)
		}
	}))

	t.Run("all must list every session oldest first from after on at most limit", fresh(func(t *testing.T, s store.Store) {
		var want []dormouse.SessionID
		for n := range 9 {
			id := sessionID(90 - n)
			create(t, s, id, func(b *store.Batch) {
				b.Rows.Index.Created, b.Rows.Index.Tenant = at(n), fmt.Sprint(n%2)
			})
			want = append(want, id)
		}
		for _, limit := range []int{1, 4, 9, 50} {
			var got []dormouse.SessionID
			var after dormouse.SessionID
			for {
				page, err := s.All(t.Context(), after, limit)
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
				after = page[len(page)-1]
			}
			equal(t, fmt.Sprintf("pages of %d", limit), got, want)
		}
	}))
}

func list(t *testing.T, s store.Store, q store.Query) []store.Index {
	t.Helper()
	found, err := s.Sessions(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pages turns the pages of a query until they end.
func pages(t *testing.T, s store.Store, q store.Query) []dormouse.SessionID {
	t.Helper()
	var ids []dormouse.SessionID
	for {
		page := list(t, s, q)
		if len(page) > q.Limit {
			t.Fatalf("a page of %d, want at most %d", len(page), q.Limit)
		}
		if len(page) == 0 {
			return ids
		}
		for _, i := range page {
			ids = append(ids, i.Session)
		}
		q.After = ids[len(ids)-1]
	}
}
