package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testSelecting(t *testing.T, fresh opener) {
	t.Run("sessions lists oldest first if q.Oldest says so from q.After on in both orders", fresh(func(t *testing.T, s store.Store) {
		// Many were created at once, so that their ids order them.
		rows := createRows(t, s, 24, func(n int, i *dormouse.SessionRow) { i.Created = at(n / 8) })
		slices.SortFunc(rows, byAge)
		want := sessionsOf(rows)
		for _, oldest := range []bool{true, false} {
			for _, limit := range []int{1, 3, 8, 100} {
				q := store.Query{Tenant: "acme", Oldest: oldest, Limit: limit}
				equal(t, fmt.Sprintf("pages of %d, oldest first: %v", limit, oldest), pages(t, s, q), want)
			}
			slices.Reverse(want)
		}
	}))

	t.Run("an agent its version and statuses select when given", fresh(func(t *testing.T, s store.Store) {
		agents := []string{"", "agent_a", "agent_b"}
		statuses := []dormouse.Status{dormouse.StatusIdle, dormouse.StatusRunning, dormouse.StatusRescheduling, dormouse.StatusTerminated}
		rows := createRows(t, s, 48, func(n int, i *dormouse.SessionRow) {
			if i.AgentID = agents[n%3]; i.AgentID != "" {
				i.AgentVersion, i.EnvironmentID = 1+n/3%2, "env_a"
			}
			i.Status, i.Created = statuses[n/6%4], at(n/4)
		})
		for _, agent := range []string{"", "agent_a", "agent_c", "AGENT_A"} {
			for _, version := range []int{0, 1, 3} {
				for _, wanted := range [][]dormouse.Status{nil, statuses[:1], statuses[1:3], statuses, {"none"}} {
					holds(t, s, rows, store.Query{AgentID: agent, AgentVersion: version, Statuses: wanted}, func(i dormouse.SessionRow) bool {
						return (agent == "" || i.AgentID == agent) && (version == 0 || i.AgentVersion == version) &&
							(len(wanted) == 0 || slices.Contains(wanted, i.Status))
					})
				}
			}
		}
	}))

	t.Run("bounds on the time of creation select", fresh(func(t *testing.T, s store.Store) {
		rows := createRows(t, s, 20, func(n int, i *dormouse.SessionRow) { i.Created = at(n / 4) })
		bounds := []time.Time{{}, at(-1), at(0), at(2).Add(-1), at(2), at(2).Add(1), at(4), at(5)}
		for _, low := range bounds {
			for _, high := range bounds {
				for _, strict := range []bool{false, true} {
					q := store.Query{CreatedFrom: low, CreatedUntil: high}
					if strict {
						q = store.Query{CreatedAfter: low, CreatedBefore: high}
					}
					holds(t, s, rows, q, func(i dormouse.SessionRow) bool {
						if strict {
							return (low.IsZero() || i.Created.After(low)) && (high.IsZero() || i.Created.Before(high))
						}
						return (low.IsZero() || !i.Created.Before(low)) && (high.IsZero() || !i.Created.After(high))
					})
				}
			}
		}
	}))

	t.Run("a cursor goes on where its page ended whatever has happened to its session since", fresh(func(t *testing.T, s store.Store) {
		createRows(t, s, 6, func(_ int, i *dormouse.SessionRow) { i.Created = at(0) })
		w := create(t, s, sessionID(50), func(b *store.Batch) { b.Rows.Session.Created, b.Rows.Session.AgentID = at(0), "agent_a" })
		w.add(t, func(b *store.Batch) {
			b.Rows.Session.Archived, b.Rows.Session.Status = at(9), dormouse.StatusTerminated
		})
		for oldest, want := range map[bool]int{true: 0, false: 6} {
			q := store.Query{Tenant: "acme", Oldest: oldest, Statuses: []dormouse.Status{dormouse.StatusIdle}, After: w.id, Limit: 10}
			if got := list(t, s, q); len(got) != want {
				t.Errorf("%d sessions after it, oldest first: %v; want %d", len(got), oldest, want)
			}
		}
	}))

	t.Run("what a session was made of is in its row and a rebuild replaces it", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1), func(b *store.Batch) {
			i := &b.Rows.Session
			i.AgentID, i.AgentVersion, i.EnvironmentID = "agent_a", 7, "env_a"
		})
		w.add(t)
		equal(t, "sessions", list(t, s, store.Query{Tenant: "acme", AgentID: "agent_a", AgentVersion: 7, Limit: 5}), []dormouse.SessionRow{w.index})
		rows := dormouse.Rows{Session: w.index}
		rows.Session.AgentID, rows.Session.AgentVersion, rows.Session.EnvironmentID = "agent_b", 8, ""
		if err := s.Rebuild(t.Context(), w.id, rows); err != nil {
			t.Fatal(err)
		}
		equal(t, "sessions of the agent it had", list(t, s, store.Query{Tenant: "acme", AgentID: "agent_a", Limit: 5}), []dormouse.SessionRow{})
		equal(t, "sessions", list(t, s, store.Query{Tenant: "acme", AgentID: "agent_b", Limit: 5}), []dormouse.SessionRow{rows.Session})
	}))
}

// createRows creates sessions whose ids have nothing to do with when they were made,
// and as many of another tenant.
func createRows(t *testing.T, s store.Store, n int, change func(n int, i *dormouse.SessionRow)) []dormouse.SessionRow {
	t.Helper()
	var rows []dormouse.SessionRow
	for k := range n {
		for id, tenant := range map[dormouse.SessionID]string{sessionID(k * 7 % n): "acme", sessionID(1000 + k): "umbrella"} {
			b := first(id)
			b.Rows.Session.Tenant = tenant
			change(k, &b.Rows.Session)
			if err := s.Create(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if tenant == "acme" {
				rows = append(rows, b.Rows.Session)
			}
		}
	}
	return rows
}

// holds fails unless a query lists those rows that keep says, in both orders and
// whatever the size of a page.
func holds(t *testing.T, s store.Store, rows []dormouse.SessionRow, q store.Query, keep func(dormouse.SessionRow) bool) {
	t.Helper()
	kept := slices.DeleteFunc(slices.Clone(rows), func(i dormouse.SessionRow) bool { return !keep(i) })
	slices.SortFunc(kept, byAge)
	want := sessionsOf(kept)
	q.Tenant = "acme"
	for _, q.Oldest = range []bool{true, false} {
		for _, q.Limit = range []int{3, 100} {
			equal(t, fmt.Sprintf("%+v", q), pages(t, s, q), want)
		}
		slices.Reverse(want)
	}
}

func byAge(a, b dormouse.SessionRow) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Session, b.Session))
}

func sessionsOf(rows []dormouse.SessionRow) []dormouse.SessionID {
	ids := make([]dormouse.SessionID, len(rows))
	for n, i := range rows {
		ids[n] = i.Session
	}
	return ids
}
