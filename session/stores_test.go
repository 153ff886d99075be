package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/store/postgres"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// The tests in virtual time have a store in memory. These take the actor through
// the same on every store there is, in the time it takes.

// onEveryStore runs a test on each store. open opens the one of the test again
// and again, as servers that follow each other do.
func onEveryStore(t *testing.T, test func(t *testing.T, h *houseOn)) {
	t.Run("memory", func(t *testing.T) {
		s := new(memory.Store)
		test(t, newHouseOn(t, func() (store.Store, error) { return s.Server(), nil }))
	})
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		test(t, newHouseOn(t, func() (store.Store, error) { return sqlite.Open(context.Background(), dir, sqlite.Options{}) }))
	})
	t.Run("postgres", func(t *testing.T) {
		url := onDatabase(t)
		test(t, newHouseOn(t, func() (store.Store, error) { return postgres.Open(context.Background(), url, postgres.Options{}) }))
	})
}

// database is the PostgreSQL of these tests, for as long as they run.
var database struct {
	sync.Mutex
	server *pgserver.Server
	made   int
}

// onDatabase makes a database and returns where it is.
func onDatabase(t *testing.T) string {
	t.Helper()
	database.Lock()
	defer database.Unlock()
	if database.server == nil {
		s, err := pgserver.Start(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		database.server = s
	}
	database.made++
	name := fmt.Sprint("d", database.made)
	if err := database.server.CreateDB(t.Context(), name, ""); err != nil {
		t.Fatal(err)
	}
	return database.server.URL(name)
}

// stopDatabase ends it, if it was ever needed.
func stopDatabase() error {
	database.Lock()
	defer database.Unlock()
	if database.server == nil {
		return nil
	}
	return database.server.Stop()
}

// houseOn is a house in real time.
type houseOn struct {
	*house
	opens func() (store.Store, error)
	owned store.Store
}

func newHouseOn(t *testing.T, opens func() (store.Store, error)) *houseOn {
	h := &houseOn{opens: opens, house: &house{
		t: t, blobs: newBlobs(), model: scripted.New(scripted.Options{}),
		boxes: &boxes{boxes: make(map[boxName]*fakeBox), effects: make(map[string]int)},
	}}
	h.begin()
	t.Cleanup(h.end)
	t.Cleanup(h.boxes.endAll)
	return h
}

// begin starts a server.
func (h *houseOn) begin() {
	h.t.Helper()
	s, err := h.opens()
	if err != nil {
		h.t.Fatal(err)
	}
	h.owned = s
	h.live, err = session.New(session.Config{
		Store: s, Blobs: h.blobs, Driver: h.boxes, Agent: agent.New(oneModel{m: h.model}, tool.Builtin()), Logger: slog.New(slog.DiscardHandler),
		Server: fleet.Server{Name: "house", Addr: "nowhere", Place: "here"}, Lease: 10 * time.Second, Peers: noPeers{},
	})
	if err == nil {
		err = h.live.Join(h.t.Context())
	}
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { _ = h.live.Run(ctx) }()
}

// end stops it in order.
func (h *houseOn) end() {
	h.stop()
	if err := errors.Join(h.live.Close(context.Background()), h.owned.Close()); err != nil {
		h.t.Error(err)
	}
}

// noPeers reaches no other server.
type noPeers struct{}

func (noPeers) Do(context.Context, fleet.Route, dormouse.SessionID, dormouse.Actor, law.Verb) error {
	return fleet.ErrUnreached
}

func (noPeers) Follow(context.Context, fleet.Route, dormouse.SessionID, uint64, func(feed.Relayed)) error {
	return fleet.ErrUnreached
}

// until waits for something to become true of the log.
func (h *houseOn) until(what string, holds func(events []dormouse.Event) bool) []dormouse.Event {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		events := h.log()
		if holds(events) {
			return events
		}
		if time.Now().After(end) {
			h.t.Fatalf("never seen: %s\n%s", what, dump(events))
		}
	}
}

// untilCount waits for that many events of a type and holds the log against the
// law.
func (h *houseOn) untilCount(typ dormouse.EventType, n int) {
	h.t.Helper()
	events := h.until(fmt.Sprint(n, " ", typ), func(events []dormouse.Event) bool { return countType(events, typ) >= n })
	if got := countType(events, typ); got != n {
		h.t.Errorf("%d %s, want %d", got, typ, n)
	}
	if err := sessiontest.Check(events); err != nil {
		h.t.Errorf("%v\n%s", err, dump(events))
	}
}

func TestABurstRunsInOrderOnEveryStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, h *houseOn) {
		h.create(dormouse.Created{})
		for i := range 5 {
			for range 3 { // the same id is the same prompt
				h.mustPrompt(fmt.Sprint("p", i), fmt.Sprintf(`SCRIPT[{"tool":"bash","input":{"command":"effect e%d"}},{"text":"answer %d"}]`, i, i))
			}
		}
		h.untilCount(dormouse.SessionStatusIdle, 5)
		if diff := cmp.Diff([]string{"answer 0", "answer 1", "answer 2", "answer 3", "answer 4"}, h.texts()); diff != "" {
			t.Error(diff)
		}
		for i := range 5 {
			if n := h.boxes.effect(fmt.Sprint("e", i)); n != 1 {
				t.Errorf("prompt %d acted %d times", i, n)
			}
		}
		if err := h.prompt("p0", "another"); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("the same id with another body: %v", err)
		}
	})
}

func TestATurnGoesOnUnderTheNextServerOnEveryStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, h *houseOn) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", `SCRIPT[{"tool":"bash","input":{"command":"effect once; sleep 300ms"}},{"text":"done"}]`)
		h.until("the command", func([]dormouse.Event) bool { return h.boxes.effect("once") > 0 })
		h.end()
		h.begin()
		h.untilCount(dormouse.SessionStatusIdle, 1)
		if n := h.boxes.effect("once"); n != 1 {
			t.Errorf("it acted %d times", n)
		}
	})
}

func TestATreeAndItsEndOnEveryStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, h *houseOn) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(grow(`SCRIPT[{"text":"leaf"}]`)))
		var tree []dormouse.SessionID
		h.until("a tree of three", func([]dormouse.Event) bool {
			tree = h.tree()
			return len(tree) == 3
		})
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			_, err := h.live.Row(t.Context(), h.id)
			if errors.Is(err, dormouse.ErrNotFound) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the root is still there: %v", err)
			}
		}
		for _, id := range tree[1:] {
			child := &houseOn{house: h.of(id)}
			child.untilCount(dormouse.SessionTerminated, 1)
		}
		if !slices.Contains(h.boxes.removed, tree[0]) {
			t.Error("its workspace was not removed")
		}
	})
}

func TestAQuestionAndAWakeUpOnEveryStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, h *houseOn) {
		h.create(dormouse.Created{Agent: everyTool()})
		if err := h.do(law.Schedule{
			ID: "wake_w", In: 200 * time.Millisecond, Content: []dormouse.Block{dormouse.Text(says(use("question_ask", map[string]any{"question": "which?"})))},
		}); err != nil {
			t.Fatal(err)
		}
		h.untilCount(dormouse.TurnBlocked, 1)
		asked := h.use(dormouse.AgentToolUse)
		errs := make(chan error)
		for _, who := range []string{"ada", "bob"} {
			go func() {
				errs <- h.live.Do(context.Background(), h.id, dormouse.User(who), law.Answer{
					ID: dormouse.EventID("sevt_" + who), Use: asked, Content: []dormouse.Block{dormouse.Text(who)},
				})
			}()
		}
		if one, two := <-errs, <-errs; (one == nil) == (two == nil) {
			t.Errorf("answers: %v and %v", one, two)
		}
		h.until("rest", func(events []dormouse.Event) bool { return countType(events, dormouse.TurnEnded) == 1 })
		h.untilCount(dormouse.WakeupFired, 1)
		h.untilCount(dormouse.QuestionAnswered, 1)
	})
}
