package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// prompt is a prompt queued at seq.
func prompt(n int, seq uint64) dormouse.PromptRecord {
	return dormouse.PromptRecord{
		ID: promptID(n), Thread: "sthr_1", Status: dormouse.PromptIsQueued,
		Body: dormouse.DigestOf([]byte("do it")), Seq: seq, Queued: at(int(seq)),
	}
}

// op is an op with every field set, started at the given time.
func op(n int, started time.Time) dormouse.OpRecord {
	return dormouse.OpRecord{
		Op: dormouse.Op{
			ID: opID(n), Kind: dormouse.OpModel, Args: dormouse.DigestOf([]byte("args")),
			Origin: dormouse.Origin{Thread: "sthr_1", Turn: "turn_1", Call: 2, Block: -1, Command: "command"},
			Try:    1, RetryOf: opID(n + 1000), Generation: 3, Keyed: true, Use: "sevt_use",
		},
		Status: dormouse.OpOpen, Started: started,
	}
}

func finished(o dormouse.OpRecord, status dormouse.OpStatus) dormouse.OpRecord {
	o.Status, o.Outcome, o.Finished = status, dormouse.OutcomeOK, o.Started.Add(time.Second)
	return o
}

func testRows(t *testing.T, fresh opener) {
	ada := sessionID(1)

	t.Run("session must return the index row or ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		_, err := s.Session(t.Context(), ada)
		wantErr(t, "session", err, dormouse.ErrNotFound)
		w := create(t, s, ada)
		want := dormouse.SessionRow{
			Session: ada, Tenant: "acme", Owner: dormouse.User("ada"), Parent: sessionID(7), Title: "täglich",
			Phase: dormouse.PhaseRunning, Status: dormouse.StatusRunning,
			Created: at(1), Updated: at(99), Seq: 2, Due: at(500), Archived: at(98),
			Tags: []string{"b", "a", "über \"all\""}, Metadata: map[string]string{"team": "blue", "": "<&>", "a.b": ""},
			Metrics: dormouse.Metrics{
				ActiveSeconds: 0.1 + 0.2, Messages: 1 << 40, ToolCalls: 3, CostMicros: 1 << 50,
				ModelUsage: dormouse.ModelUsage{InputTokens: 1, OutputTokens: 2, CacheReadInputTokens: 3, CacheCreationInputTokens: 4},
			},
			Search: "täglich\n" + longText,
		}
		w.add(t, func(b *store.Batch) { b.Rows.Session = want })
		got, err := s.Session(t.Context(), ada)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "index", got, want)
		for _, tm := range []time.Time{got.Created, got.Updated, got.Due, got.Archived} {
			if tm.Location() != time.UTC {
				t.Errorf("%v is not in UTC", tm)
			}
		}
		for n, change := range []func(*dormouse.SessionRow){
			func(i *dormouse.SessionRow) { i.Due = time.Time{} },
			func(i *dormouse.SessionRow) { i.Archived = time.Time{} },
			func(i *dormouse.SessionRow) { i.Metrics.Messages++ },
			func(i *dormouse.SessionRow) { i.Tags = i.Tags[:1] },
			func(i *dormouse.SessionRow) { i.Metadata = map[string]string{"team": "red"} },
			func(i *dormouse.SessionRow) { i.Search = "other" },
			func(i *dormouse.SessionRow) { i.Tags, i.Metadata, i.Search = nil, nil, "" },
			func(i *dormouse.SessionRow) { i.Tags = []string{"again"} },
		} {
			change(&want)
			want.Seq++
			w.add(t, func(b *store.Batch) { b.Rows.Session = want })
			if got, err = s.Session(t.Context(), ada); err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("index after change %d", n), got, want)
		}
	}))

	t.Run("what a caller does with an index row afterwards changes nothing", fresh(func(t *testing.T, s store.Store) {
		tags, metadata := []string{"a", "b"}, map[string]string{"team": "blue"}
		create(t, s, ada, func(b *store.Batch) { b.Rows.Session.Tags, b.Rows.Session.Metadata = tags, metadata })
		tags[0], metadata["team"] = "!", "!"
		for range 2 {
			got := contents(t, s, ada).Index
			equal(t, "tags", got.Tags, []string{"a", "b"})
			equal(t, "metadata", got.Metadata, map[string]string{"team": "blue"})
			got.Tags[0], got.Metadata["team"] = "?", "?"
		}
	}))

	t.Run("prompts are inserted or replaced by id", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		p := prompt(1, 2)
		w.add(t, func(b *store.Batch) { b.Rows.Prompts = []dormouse.PromptRecord{p} })
		theirs := p
		theirs.Thread = "sthr_other"
		other.add(t, func(b *store.Batch) { b.Rows.Prompts = []dormouse.PromptRecord{theirs} })
		p.Status, p.Turn = dormouse.PromptIsProcessing, "turn_1"
		w.add(t, func(b *store.Batch) { b.Rows.Prompts = []dormouse.PromptRecord{p} })
		equal(t, "prompts", contents(t, s, ada).Prompts, []dormouse.PromptRecord{p})
		equal(t, "prompts of the other session", contents(t, s, sessionID(2)).Prompts, []dormouse.PromptRecord{theirs})
	}))

	t.Run("prompts must list a session's prompts with the given statuses or with any if none is given oldest first", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		statuses := []dormouse.PromptStatus{
			dormouse.PromptIsQueued, dormouse.PromptIsProcessing, dormouse.PromptIsCompleted, dormouse.PromptIsCancelled,
		}
		var want []dormouse.PromptRecord
		for i := range 12 {
			p := prompt(100-i, uint64(i)+2) // ids run against the order
			p.Status = statuses[i%4]
			want = append(want, p)
			w.add(t, func(b *store.Batch) { b.Rows.Prompts = []dormouse.PromptRecord{p} })
		}
		for _, test := range []struct {
			statuses []dormouse.PromptStatus
			keep     func(i int) bool
		}{
			{nil, func(int) bool { return true }},
			{statuses[:1], func(i int) bool { return i%4 == 0 }},
			{statuses[2:], func(i int) bool { return i%4 >= 2 }},
			{statuses, func(int) bool { return true }},
			{[]dormouse.PromptStatus{"other"}, func(int) bool { return false }},
		} {
			var kept []dormouse.PromptRecord
			for i, p := range want {
				if test.keep(i) {
					kept = append(kept, p)
				}
			}
			got, err := s.Prompts(t.Context(), ada, test.statuses...)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprint(test.statuses), got, kept)
		}
	}))

	t.Run("prompt must return one prompt or ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		create(t, s, sessionID(2))
		w.add(t, func(b *store.Batch) { b.Rows.Prompts = []dormouse.PromptRecord{prompt(1, 2), prompt(2, 2)} })
		got, err := s.Prompt(t.Context(), ada, promptID(1))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "prompt", got, prompt(1, 2))
		_, err = s.Prompt(t.Context(), ada, promptID(3))
		wantErr(t, "prompt that is not there", err, dormouse.ErrNotFound)
		_, err = s.Prompt(t.Context(), sessionID(2), promptID(1))
		wantErr(t, "prompt of another session", err, dormouse.ErrNotFound)
		_, err = s.Prompt(t.Context(), sessionID(3), promptID(1))
		wantErr(t, "prompt of no session", err, dormouse.ErrNotFound)
	}))

	t.Run("client ids must return the seq of each of the ids that a client has given in the session", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, func(b *store.Batch) {
			b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_a", Seq: 2}, {ID: "wake_b", Seq: 2}}
		})
		w.add(t, func(b *store.Batch) { b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_c", Seq: 3}} })
		// The ids of another session do not matter, whichever had them first.
		other.add(t, func(b *store.Batch) {
			b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_c", Seq: 2}, {ID: "sevt_d", Seq: 2}}
		})
		for _, test := range []struct {
			id   dormouse.SessionID
			ids  []string
			want map[string]uint64
		}{
			{ada, []string{"sevt_a", "sevt_c", "sevt_d", "sevt_a"}, map[string]uint64{"sevt_a": 2, "sevt_c": 3}},
			{ada, nil, map[string]uint64{}},
			{sessionID(2), []string{"sevt_a", "sevt_c"}, map[string]uint64{"sevt_c": 2}},
			{sessionID(3), []string{"sevt_a"}, map[string]uint64{}},
		} {
			got, err := s.ClientIDs(t.Context(), test.id, test.ids...)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprint(test.id, test.ids), got, test.want)
		}
	}))

	t.Run("append must refuse an id that a client gave before with ErrConflict", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, func(b *store.Batch) { b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_a", Seq: 2}} })
		before := contents(t, s, ada)
		for _, given := range [][]dormouse.ClientID{{{ID: "sevt_a", Seq: 3}}, {{ID: "sevt_b", Seq: 3}, {ID: "sevt_b", Seq: 3}}} {
			b := w.batch(1)
			b.Rows.Session.Title, b.Rows.ClientIDs = "of a double", given
			// Writes that share its commit are not affected.
			beside := make(chan error, 1)
			go func() { beside <- other.try(t.Context()) }()
			wantErr(t, "append", s.Append(t.Context(), b), dormouse.ErrConflict)
			if err := <-beside; err != nil {
				t.Errorf("another session beside it: %v", err)
			}
			equal(t, "contents", contents(t, s, ada), before)
		}
		w.add(t, func(b *store.Batch) { b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_b", Seq: 3}} })
	}))

	t.Run("client ids are replaced by a rebuild and gone with their session", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		w.add(t, func(b *store.Batch) {
			b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_a", Seq: 2}, {ID: "sevt_b", Seq: 2}}
		})
		if err := s.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index, ClientIDs: []dormouse.ClientID{{ID: "sevt_b", Seq: 1}}}); err != nil {
			t.Fatal(err)
		}
		given := func(want map[string]uint64) {
			t.Helper()
			got, err := s.ClientIDs(t.Context(), ada, "sevt_a", "sevt_b")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "client ids", got, want)
		}
		given(map[string]uint64{"sevt_b": 1})
		if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
			t.Fatal(err)
		}
		given(map[string]uint64{})
		w = create(t, s, ada)
		w.add(t, func(b *store.Batch) { b.Rows.ClientIDs = []dormouse.ClientID{{ID: "sevt_b", Seq: 2}} })
		given(map[string]uint64{"sevt_b": 2})
	}))

	t.Run("ops must list a session's ops the last recorded first at most limit", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		var want []dormouse.OpRecord
		for i := range 6 {
			o := op(50-i, at(100-i/2)) // ids and a clock that run against the order
			want = append([]dormouse.OpRecord{o}, want...)
			w.add(t, func(b *store.Batch) { b.Rows.Ops = []dormouse.OpRecord{o} })
		}
		// An op that ends keeps its place.
		want[4] = finished(want[4], dormouse.OpDone)
		w.add(t, func(b *store.Batch) { b.Rows.Ops = []dormouse.OpRecord{want[4]} })
		for _, limit := range []int{100, 6, 5, 1, 0} {
			got, err := s.Ops(t.Context(), ada, limit)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("at most %d", limit), got, want[:min(limit, 6)])
		}
		if got, err := s.Ops(t.Context(), sessionID(2), 5); err != nil || len(got) != 0 {
			t.Errorf("ops of an unknown session = %v, %v, want none", got, err)
		}
	}))

	t.Run("many rows fit in one batch", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		b := w.batch(300)
		for i := range 300 {
			b.Rows.Prompts = append(b.Rows.Prompts, prompt(i, uint64(i)+2))
			b.Rows.Ops = append(b.Rows.Ops, op(300-i, at(i)))
		}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		got := contents(t, s, ada)
		seqs(t, got.Events, 1, 301)
		equal(t, "prompts", got.Prompts, b.Rows.Prompts)
		if len(got.Ops) != 300 || got.Ops[0].ID != opID(1) || got.Ops[299].ID != opID(300) {
			t.Errorf("%d ops", len(got.Ops))
		}
	}))
}
