package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testListing(t *testing.T, fresh opener) {
	t.Run("sessions must list newest first at most q.Limit from q.After on", fresh(func(t *testing.T, s store.Store) {
		var want []dormouse.SessionID
		for n := range 10 {
			id := sessionID(99 - n) // ids run against the order
			create(t, s, id, func(b *store.Batch) { b.Rows.Session.Created = at(n) })
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
			create(t, s, id, func(b *store.Batch) { b.Rows.Session.Created = at(n / 10) })
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
			ws[n] = create(t, s, sessionID(n), func(b *store.Batch) { b.Rows.Session.Created = at(n) })
		}
		before := pages(t, s, store.Query{Tenant: "acme", Limit: 2})
		ws[0].add(t)
		equal(t, "pages", pages(t, s, store.Query{Tenant: "acme", Limit: 2}), before)
	}))

	t.Run("owner parent and phase select when not empty and the tenant always", fresh(func(t *testing.T, s store.Store) {
		n := 0
		var rows []dormouse.SessionRow
		for _, tenant := range []string{"acme", "umbrella", ""} {
			for _, owner := range []dormouse.Actor{"user:ada", "user:bob"} {
				for _, parent := range []dormouse.SessionID{"", "sesn_p", "sesn_q"} {
					for _, phase := range []dormouse.Phase{dormouse.PhaseReady, dormouse.PhaseRunning} {
						create(t, s, sessionID(n), func(b *store.Batch) {
							i := &b.Rows.Session
							i.Tenant, i.Owner, i.Parent, i.Phase, i.Created = tenant, owner, parent, phase, at(n)
							rows = append([]dormouse.SessionRow{*i}, rows...)
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

	t.Run("text selects sessions whose search contains it whatever its case and no character in it is special", fresh(func(t *testing.T, s store.Store) {
		texts := []string{"fix the login page", "100% of_it\\now", "ünïcode 🐭 and 'quotes\"", "", "login\nagain"}
		for n, text := range texts {
			create(t, s, sessionID(n), func(b *store.Batch) { b.Rows.Session.Search, b.Rows.Session.Created = text, at(n) })
		}
		for _, text := range []string{
			"", "login", "LogIn", "login page", "page login", "%", "_", "0% of_", "o%f", "f_x", `\`, `\\`, "ÜNÏ", "🐭", "'", `"`, "''", "*", "?", "n\na", "^fix", ".",
		} {
			var want []dormouse.SessionID
			for n, search := range slices.Backward(texts) {
				if strings.Contains(search, strings.ToLower(text)) {
					want = append(want, sessionID(n))
				}
			}
			equal(t, fmt.Sprintf("sessions with %q", text), pages(t, s, store.Query{Tenant: "acme", Text: text, Limit: 2}), want)
		}
	}))

	t.Run("tags selects sessions that have all of them", fresh(func(t *testing.T, s store.Store) {
		for n, tags := range [][]string{nil, {"a"}, {"a", "b"}, {"b", "c", "a"}, {"A"}, {"ab"}, {`q"uo'te,`, "%", "b"}} {
			create(t, s, sessionID(n), func(b *store.Batch) { b.Rows.Session.Tags, b.Rows.Session.Created = tags, at(-n) })
		}
		for _, test := range []struct {
			tags []string
			want []dormouse.SessionID
		}{
			{[]string{"a"}, []dormouse.SessionID{sessionID(1), sessionID(2), sessionID(3)}},
			{[]string{"b", "a"}, []dormouse.SessionID{sessionID(2), sessionID(3)}},
			{[]string{"a", "a"}, []dormouse.SessionID{sessionID(1), sessionID(2), sessionID(3)}},
			{[]string{"A"}, []dormouse.SessionID{sessionID(4)}},
			{[]string{`q"uo'te,`}, []dormouse.SessionID{sessionID(6)}},
			{[]string{"%"}, []dormouse.SessionID{sessionID(6)}},
			{[]string{"a", "x"}, nil},
			{[]string{""}, nil},
		} {
			equal(t, fmt.Sprintf("sessions tagged %q", test.tags), pages(t, s, store.Query{Tenant: "acme", Tags: test.tags, Limit: 2}), test.want)
		}
	}))

	t.Run("metadata selects sessions that have every one of its pairs", fresh(func(t *testing.T, s store.Store) {
		for n, metadata := range []map[string]string{
			nil, {"team": "blue"}, {"team": "blue", "env": "prod"}, {"team": "red", "env": "prod"}, {"blue": "team"}, {"a.b": "", `k"'`: `v"'<&>`},
		} {
			create(t, s, sessionID(n), func(b *store.Batch) { b.Rows.Session.Metadata, b.Rows.Session.Created = metadata, at(-n) })
		}
		for _, test := range []struct {
			metadata map[string]string
			want     []dormouse.SessionID
		}{
			{map[string]string{"team": "blue"}, []dormouse.SessionID{sessionID(1), sessionID(2)}},
			{map[string]string{"team": "blue", "env": "prod"}, []dormouse.SessionID{sessionID(2)}},
			{map[string]string{"env": "prod"}, []dormouse.SessionID{sessionID(2), sessionID(3)}},
			{map[string]string{"a.b": ""}, []dormouse.SessionID{sessionID(5)}},
			{map[string]string{`k"'`: `v"'<&>`}, []dormouse.SessionID{sessionID(5)}},
			{map[string]string{"team": "Blue"}, nil},
			{map[string]string{"env": ""}, nil},
			{map[string]string{"team": "blue", "env": ""}, nil},
		} {
			equal(t, fmt.Sprintf("sessions with %q", test.metadata), pages(t, s, store.Query{Tenant: "acme", Metadata: test.metadata, Limit: 2}), test.want)
		}
	}))

	t.Run("archived also lists what was put away", fresh(func(t *testing.T, s store.Store) {
		for n := range 6 {
			create(t, s, sessionID(n), func(b *store.Batch) {
				b.Rows.Session.Created = at(-n)
				if n%2 == 1 {
					b.Rows.Session.Archived = at(n)
				}
			})
		}
		some, every := []dormouse.SessionID{sessionID(0), sessionID(2), sessionID(4)}, make([]dormouse.SessionID, 6)
		for n := range every {
			every[n] = sessionID(n)
		}
		equal(t, "sessions", pages(t, s, store.Query{Tenant: "acme", Limit: 2}), some)
		equal(t, "sessions and archived ones", pages(t, s, store.Query{Tenant: "acme", Archived: true, Limit: 2}), every)
		after, err := s.Sessions(t.Context(), store.Query{Tenant: "acme", After: sessionID(1), Limit: 9})
		if err != nil || len(after) != 2 {
			t.Errorf("%d sessions after an archived one, %v, want 2", len(after), err)
		}
	}))

	t.Run("what a query asks for it asks for at once", fresh(func(t *testing.T, s store.Store) {
		for n := range 32 {
			create(t, s, sessionID(n), func(b *store.Batch) {
				i := &b.Rows.Session
				i.Created, i.Search = at(-n), "nothing"
				if n&1 != 0 {
					i.Search = "a login"
				}
				if n&2 != 0 {
					i.Tags = []string{"x", "y"}
				}
				if n&4 != 0 {
					i.Metadata = map[string]string{"k": "v"}
				}
				if n&8 != 0 {
					i.Phase = dormouse.PhaseRunning
				}
				if n&16 != 0 {
					i.Archived = at(1)
				}
			})
		}
		q := store.Query{Tenant: "acme", Phase: dormouse.PhaseRunning, Text: "Log", Tags: []string{"y"}, Metadata: map[string]string{"k": "v"}, Limit: 1}
		equal(t, "sessions", pages(t, s, q), []dormouse.SessionID{sessionID(15)})
		q.Archived = true
		equal(t, "sessions and archived ones", pages(t, s, q), []dormouse.SessionID{sessionID(15), sessionID(31)})
	}))

	t.Run("a listed row is the index row", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		w.add(t, func(b *store.Batch) {
			i := &b.Rows.Session
			i.Due, i.Tags, i.Metadata, i.Search = at(3), []string{"t"}, map[string]string{"k": "v"}, "s"
			i.Metrics.Messages = 7
		})
		equal(t, "sessions", list(t, s, store.Query{Tenant: "acme", Limit: 5}), []dormouse.SessionRow{w.index})
	}))

	t.Run("a q.After that the tenant does not have must be ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		create(t, s, sessionID(1))
		create(t, s, sessionID(2), func(b *store.Batch) { b.Rows.Session.Tenant = "umbrella" })
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
				b.Rows.Session.Created, b.Rows.Session.Tenant = at(n), fmt.Sprint(n%2)
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

func list(t *testing.T, s store.Store, q store.Query) []dormouse.SessionRow {
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
