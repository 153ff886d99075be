package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testLog(t *testing.T, fresh opener) {
	ada := sessionID(1)

	t.Run("create stores the first events of a session with epoch 0 and no owner so that nobody can append before a claim", fresh(func(t *testing.T, s store.Store) {
		b := first(ada)
		if err := s.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		equal(t, "log", all(t, s, ada), b.Events)
		w := &writer{store: s, id: ada, index: b.Rows.Session}
		wantErr(t, "append before any claim", w.try(t.Context()), dormouse.ErrLeaseLost)
		epoch, err := s.Claim(t.Context(), ada, 0)
		if err != nil || epoch == 0 {
			t.Errorf("first claim = %d, %v, want an epoch above 0", epoch, err)
		}
	}))

	t.Run("a session that exists must be refused with ErrConflict", fresh(func(t *testing.T, s store.Store) {
		create(t, s, ada).add(t)
		again := first(ada)
		again.Rows.Session.Title = "another"
		wantErr(t, "second create", s.Create(t.Context(), again), dormouse.ErrConflict)
		seqs(t, all(t, s, ada), 1, 2)
		index, err := s.Session(t.Context(), ada)
		if err != nil || index.Title != "a title" {
			t.Errorf("title = %q, %v, want that of the first create", index.Title, err)
		}
	}))

	t.Run("if b.Under names the session that asked for it and its epoch is another by now it must be refused with ErrStaleSender", fresh(func(t *testing.T, s store.Store) {
		parent, child := create(t, s, ada), create(t, s, sessionID(2))
		send := func(f dormouse.Fence) error {
			return child.try(t.Context(), func(b *store.Batch) {
				b.Under = &f
				b.Rows.Session.Tags = []string{fmt.Sprint(b.After)}
				b.Rows.Prompts = []dormouse.PromptRecord{prompt(int(b.After), b.Last())}
			})
		}
		mine := dormouse.Fence{Session: ada, Epoch: parent.epoch}
		for range 2 {
			if err := send(mine); err != nil {
				t.Fatal(err)
			}
			child.add(t) // and beside it goes on
		}
		before := contents(t, s, child.id)
		if len(before.Prompts) != 2 || len(before.Events) != 5 {
			t.Errorf("%d prompts and %d events are there", len(before.Prompts), len(before.Events))
		}
		later, err := s.Claim(t.Context(), ada, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []dormouse.Fence{mine, {Session: ada}, {Session: ada, Epoch: later + 1}, {Session: sessionID(9), Epoch: 1}} {
			wantErr(t, fmt.Sprintf("under %+v", f), send(f), store.ErrStaleSender)
		}
		equal(t, "contents", contents(t, s, child.id), before)
		if err := send(dormouse.Fence{Session: ada, Epoch: later}); err != nil {
			t.Errorf("under the newest lease: %v", err)
		}
		// Its own fence holds all the same.
		was := child.epoch
		child.epoch--
		if err := send(dormouse.Fence{Session: ada, Epoch: later}); !errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, store.ErrStaleSender) {
			t.Errorf("who lost the session itself was told %v", err)
		}
		child.epoch = was
		b := child.batch(1)
		b.Under, b.After, b.Events[0].Seq, b.Rows.Session.Seq = &dormouse.Fence{Session: ada, Epoch: later}, b.After+1, b.After+2, b.After+2
		wantErr(t, "after what is not there", s.Append(t.Context(), b), dormouse.ErrConflict)
		child.add(t)
	}))

	t.Run("if b.Under names a parent a parent whose epoch is another by now must be refused with ErrStaleSender", fresh(func(t *testing.T, s store.Store) {
		parent := create(t, s, ada)
		under := func(id dormouse.SessionID, f dormouse.Fence) error {
			b := first(id)
			b.Under, b.Rows.Session.Parent = &f, f.Session
			return s.Create(t.Context(), b)
		}
		held := dormouse.Fence{Session: ada, Epoch: parent.epoch}
		if err := under(sessionID(2), held); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "create of a child that exists", under(sessionID(2), held), dormouse.ErrConflict)
		for _, f := range []dormouse.Fence{
			{Session: ada, Epoch: parent.epoch - 1},
			{Session: ada, Epoch: parent.epoch + 1},
			{Session: ada},
			{Session: "sesn_nobody"},
			{Session: "sesn_nobody", Epoch: parent.epoch},
		} {
			wantErr(t, fmt.Sprintf("create under %v", f), under(sessionID(3), f), dormouse.ErrLeaseLost)
		}
		if _, err := s.Claim(t.Context(), ada, 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "create by who lost the parent", under(sessionID(3), held), dormouse.ErrLeaseLost)
		_, err := s.Session(t.Context(), sessionID(3))
		wantErr(t, "session of a refused create", err, dormouse.ErrNotFound)
		seqs(t, all(t, s, sessionID(2)), 1, 1)
	}))

	t.Run("claim must return a higher epoch than any claim before it and from then on a stale epoch cannot append", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		old := *w
		for range 3 {
			epoch, err := s.Claim(t.Context(), ada, 0)
			if err != nil {
				t.Fatal(err)
			}
			if epoch <= w.epoch {
				t.Errorf("claim = %d after %d", epoch, w.epoch)
			}
			w.epoch = epoch
		}
		wantErr(t, "append with the old epoch", old.try(t.Context()), dormouse.ErrLeaseLost)
		w.add(t)
		seqs(t, all(t, s, ada), 1, 2)
	}))

	t.Run("claim must return a higher epoch than above", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		for _, above := range []store.Epoch{w.epoch + 40, w.epoch + 40, 1, 1 << 40, 0} {
			epoch, err := s.Claim(t.Context(), ada, above)
			if err != nil {
				t.Fatal(err)
			}
			if epoch <= w.epoch || epoch <= above {
				t.Errorf("claim above %d = %d after %d", above, epoch, w.epoch)
			}
			old := *w
			w.epoch = epoch
			wantErr(t, "append with the old epoch", old.try(t.Context()), dormouse.ErrLeaseLost)
			w.add(t)
		}
	}))

	t.Run("claims of one session leave the others alone", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		if _, err := s.Claim(t.Context(), ada, 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "append with the old epoch", w.try(t.Context()), dormouse.ErrLeaseLost)
		other.add(t)
	}))

	t.Run("claim of an unknown session is ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		_, err := s.Claim(t.Context(), ada, 0)
		wantErr(t, "claim", err, dormouse.ErrNotFound)
	}))

	t.Run("append must refuse a stale epoch with ErrLeaseLost", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		for _, epoch := range []store.Epoch{0, w.epoch - 1, w.epoch + 1} {
			wantErr(t, "append", w.try(t.Context(), func(b *store.Batch) { b.Epoch = epoch }), dormouse.ErrLeaseLost)
		}
		stale := w.batch(0)
		stale.Epoch, stale.After = w.epoch-1, 7
		wantErr(t, "append that is stale and misplaced", s.Append(t.Context(), stale), dormouse.ErrLeaseLost)
		chunk := w.batch(0)
		chunk.Epoch, chunk.Chunks = w.epoch-1, []store.Chunk{{Op: opID(1)}}
		wantErr(t, "append of a chunk", s.Append(t.Context(), chunk), dormouse.ErrLeaseLost)
		seqs(t, all(t, s, ada), 1, 1)
	}))

	t.Run("append must refuse a wrong After with ErrConflict", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		behind := *w
		w.add(t)
		wantErr(t, "append after an older event", behind.try(t.Context()), dormouse.ErrConflict)
		ahead := *w
		ahead.index.Seq++
		wantErr(t, "append after an event that is not there", ahead.try(t.Context()), dormouse.ErrConflict)
		empty := behind.batch(0)
		wantErr(t, "append of nothing", s.Append(t.Context(), empty), dormouse.ErrConflict)
		seqs(t, all(t, s, ada), 1, 2)
		w.add(t)
	}))

	t.Run("append must refuse an unknown session with ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		w := &writer{store: s, id: ada, epoch: 1, index: first(ada).Rows.Session}
		wantErr(t, "append", w.try(t.Context()), dormouse.ErrNotFound)
	}))

	t.Run("a batch at odds with itself is refused with ErrInvalid", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		for what, change := range map[string]func(*store.Batch){
			"gap":               func(b *store.Batch) { b.Events[0].Seq++ },
			"repeated seq":      func(b *store.Batch) { b.Events[0].Seq-- },
			"events, no rows":   func(b *store.Batch) { b.Rows = nil },
			"index of another":  func(b *store.Batch) { b.Rows.Session.Session = sessionID(2) },
			"index lags behind": func(b *store.Batch) { b.Rows.Session.Seq-- },
			"state lags behind": func(b *store.Batch) { b.State = &dormouse.StateCache{Seq: b.After} },
		} {
			wantErr(t, what, w.try(t.Context(), change), dormouse.ErrInvalid)
		}
		seqs(t, all(t, s, ada), 1, 1)
		late := first(sessionID(2))
		late.After, late.Events[0].Seq, late.Rows.Session.Seq = 1, 2, 2
		wantErr(t, "create that begins at 2", s.Create(t.Context(), late), dormouse.ErrInvalid)
		wantErr(t, "create of nothing", s.Create(t.Context(), store.Batch{Session: sessionID(2)}), dormouse.ErrInvalid)
	}))

	t.Run("an append must be all or nothing", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		b := w.batch(3)
		b.Epoch--
		b.Rows.Session.Title = "refused"
		b.Rows.Prompts = []dormouse.PromptRecord{{ID: promptID(1), Status: dormouse.PromptIsQueued, Seq: 2, Queued: start}}
		b.Rows.Ops = []dormouse.OpRecord{{Op: dormouse.Op{ID: opID(1)}, Status: dormouse.OpOpen, Started: start}}
		b.Chunks = []store.Chunk{{Op: opID(1), Text: "seen"}}
		b.State = &dormouse.StateCache{Seq: 4, Data: []byte("folded")}
		wantErr(t, "append", s.Append(t.Context(), b), dormouse.ErrLeaseLost)
		if got := contents(t, s, ada); got.size() != 0 || len(got.Events) != 1 || got.Index.Title != "a title" {
			t.Errorf("after a refused append: %+v", got)
		}
		b.Epoch = w.epoch
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, s, ada); got.size() != 4 || len(got.Events) != 4 || got.Index.Title != "refused" {
			t.Errorf("after an append: %+v", got)
		}
	}))

	t.Run("read must return events with a seq above after in order at most limit", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		other := create(t, s, sessionID(2))
		for range 4 {
			if err := s.Append(t.Context(), w.batch(5)); err != nil {
				t.Fatal(err)
			}
			w.index.Seq += 5
			other.add(t)
		}
		for _, test := range []struct {
			after       uint64
			limit       int
			first, last uint64
		}{
			{0, 100, 1, 21},
			{0, 21, 1, 21},
			{0, 20, 1, 20},
			{0, 1, 1, 1},
			{7, 5, 8, 12},
			{20, 5, 21, 21},
			{21, 5, 22, 21},
			{99, 5, 1, 0},
			{3, 0, 1, 0},
		} {
			events, err := s.Read(t.Context(), ada, test.after, test.limit)
			if err != nil {
				t.Fatal(err)
			}
			seqs(t, events, test.first, test.last)
		}
		events, err := s.Read(t.Context(), sessionID(3), 0, 5)
		if err != nil || len(events) != 0 {
			t.Errorf("events of an unknown session = %v, %v, want none", events, err)
		}
	}))

	t.Run("the bytes stored are the bytes read", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		b := w.batch(4)
		b.Events[0].Payload = json.RawMessage("{ \"spaces\" :\t1,\n\"b\":2,\"a\":\"\\u00e9\"}")
		b.Events[1].Payload, b.Events[1].Blob = nil, dormouse.DigestOf([]byte("large"))
		b.Events[2].Thread, b.Events[2].Actor = "", dormouse.ActorServer
		b.Events[3].Payload = json.RawMessage(`"` + longText + `"`)
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		equal(t, "log", all(t, s, ada)[1:], b.Events)
	}))

	t.Run("times must come back as they were given in UTC", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		b := w.batch(1)
		b.Events[0].Time = at(1).In(time.FixedZone("far away", 5*60*60))
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		got := all(t, s, ada)[1].Time
		if !got.Equal(at(1)) || got.Location() != time.UTC || got.Nanosecond() != 123_457_000 {
			t.Errorf("time = %v, want %v", got, at(1))
		}
	}))

	t.Run("what a caller does with its bytes afterwards changes nothing", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		b := w.batch(1)
		b.Events[0].Payload = json.RawMessage(`{"a":1}`)
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.Events[0].Payload[1] = '!'
		all(t, s, ada)[1].Payload[1] = '?'
		if got := string(all(t, s, ada)[1].Payload); got != `{"a":1}` {
			t.Errorf("payload = %s", got)
		}
	}))

	t.Run("a caller who has already left changes nothing", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		gone, left := errors.New("gone"), t.Context()
		left, leave := context.WithCancelCause(left)
		leave(gone)
		wantErr(t, "create", s.Create(left, first(sessionID(2))), gone)
		_, err := s.Claim(left, ada, 0)
		wantErr(t, "claim", err, gone)
		wantErr(t, "append", w.try(left), gone)
		w.add(t)
		seqs(t, all(t, s, ada), 1, 2)
		_, err = s.Session(t.Context(), sessionID(2))
		wantErr(t, "session", err, dormouse.ErrNotFound)
	}))
}

// longText is longer than a page of a database.
var longText = func() string {
	b := make([]byte, 20_000)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return string(b)
}()

// everything is all a store says of one session.
type everything struct {
	Index   dormouse.SessionRow
	Events  []dormouse.Event
	Prompts []dormouse.PromptRecord
	Ops     []dormouse.OpRecord
	Chunks  []store.Chunk // of the first op
	State   dormouse.StateCache
}

// size counts what is derived.
func (e everything) size() int {
	n := len(e.Prompts) + len(e.Ops) + len(e.Chunks)
	if e.State.Seq > 0 {
		n++
	}
	return n
}

func contents(t *testing.T, s store.Store, id dormouse.SessionID) everything {
	t.Helper()
	var e everything
	var errs [5]error
	e.Events = all(t, s, id)
	e.Index, errs[0] = s.Session(t.Context(), id)
	e.Prompts, errs[1] = s.Prompts(t.Context(), id)
	e.Ops, errs[2] = s.Ops(t.Context(), id, 1<<20)
	e.Chunks, errs[3] = s.Chunks(t.Context(), id, opID(1))
	e.State, errs[4] = s.State(t.Context(), id)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return e
}

func testClosed(t *testing.T, open func(t *testing.T) store.Store) {
	s := open(t)
	w := create(t, s, sessionID(1))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, "append", w.try(t.Context()), dormouse.ErrClosing)
	wantErr(t, "create", s.Create(t.Context(), first(sessionID(2))), dormouse.ErrClosing)
	_, err := s.Claim(t.Context(), sessionID(1), 0)
	wantErr(t, "claim", err, dormouse.ErrClosing)
	_, err = s.Read(t.Context(), sessionID(1), 0, 1)
	wantErr(t, "read", err, dormouse.ErrClosing)
	_, err = s.Session(t.Context(), sessionID(1))
	wantErr(t, "session", err, dormouse.ErrClosing)
	_, err = s.Epoch(t.Context(), sessionID(1))
	wantErr(t, "epoch", err, dormouse.ErrClosing)
	wantErr(t, "import", s.Import(t.Context(), first(sessionID(2))), dormouse.ErrClosing)
	wantErr(t, "delete", s.Delete(t.Context(), sessionID(1), w.epoch), dormouse.ErrClosing)
	_, err = s.Named(t.Context(), []dormouse.Digest{dormouse.DigestOf(nil)})
	wantErr(t, "named", err, dormouse.ErrClosing)
	d := doc("agent", 1)
	for verb, write := range writesOf(s) {
		wantErr(t, verb, write(t, d), dormouse.ErrClosing)
	}
	wantErr(t, "remove", s.Remove(t.Context(), d.Ref()), dormouse.ErrClosing)
	_, err = s.Document(t.Context(), d.Ref())
	wantErr(t, "document", err, dormouse.ErrClosing)
}
