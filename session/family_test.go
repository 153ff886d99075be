package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
	"github.com/dormouse-run/dormouse/store"
)

// grow is a prompt that spawns a child with this prompt.
func grow(prompt string) string {
	return says(use("child_spawn", map[string]any{"prompt": prompt}))
}

// tree returns every session, the root first.
func (h *house) tree() []dormouse.SessionID {
	h.t.Helper()
	ids := []dormouse.SessionID{h.id}
	for i := 0; i < len(ids); i++ {
		rows, err := h.live.List(h.t.Context(), session.Query{Parent: ids[i], Limit: 100})
		if err != nil {
			h.t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, r.Session)
		}
	}
	return ids
}

// of is the same house with another session in mind.
func (h *house) of(id dormouse.SessionID) *house {
	return &house{t: h.t, store: h.store, boxes: h.boxes, live: h.live, id: id}
}

func TestATreeIsTerminatedOnceThoughServersDie(t *testing.T) {
	for crashes := range 4 {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Agent: everyTool()})
			h.mustPrompt("p", grow(grow(grow(`SCRIPT[{"text":"leaf"}]`))))
			settle(time.Minute)
			tree := h.tree()
			if len(tree) != 4 {
				t.Fatalf("the tree has %d sessions, want 4", len(tree))
			}
			if err := h.do(law.Terminate{Reason: "asked"}); err != nil {
				t.Fatal(err)
			}
			for range crashes {
				h.crash()
				settle(20 * time.Millisecond)
			}
			settle(time.Minute)
			for i, id := range tree {
				events := h.of(id).log()
				if err := sessiontest.Check(events); err != nil {
					t.Error(err)
				}
				if n := countType(events, dormouse.SessionTerminated); n != 1 {
					t.Errorf("session %d was terminated %d times", i, n)
				}
				ended := 1
				if i == len(tree)-1 {
					ended = 0
				}
				if n := countType(events, dormouse.ChildEnded); n != ended {
					t.Errorf("session %d ended %d children, want %d", i, n, ended)
				}
			}
		})
	}
}

func TestAChildIsMadeOnceThoughServersDie(t *testing.T) {
	for crashes := 1; crashes < 4; crashes++ {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Agent: everyTool()})
			h.mustPrompt("p", grow(script("effect child")))
			for range crashes {
				time.Sleep(time.Millisecond)
				h.crash()
			}
			settle(time.Minute)
			tree := h.tree()
			if len(tree) != 2 {
				t.Fatalf("%d sessions, want 2", len(tree))
			}
			if n := h.boxes.effect("child"); n != 1 {
				t.Errorf("the child acted %d times", n)
			}
			h.checked()
			h.of(tree[1]).checked()
		})
	}
}

func TestAParentWaitsForItsChildAndReadsIt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"first","delay_ms":30000}]`))
		settle(time.Second)
		child := h.tree()[1]
		h.mustPrompt("q", says(
			use("child_wait", map[string]any{"child": child}),
			use("child_message", map[string]any{"child": child, "prompt": `SCRIPT[{"text":"second"}]`}),
			use("child_wait", map[string]any{"child": child}),
			use("child_read", map[string]any{"child": child, "last": 4}),
			use("child_read", map[string]any{"child": h.id}),
			use("child_terminate", map[string]any{"child": child}),
		))
		settle(2 * time.Minute)
		told := h.results()
		if len(told) != 7 {
			t.Fatalf("the agent was told %q", told)
		}
		for i, want := range []string{"is started", "first", "has the prompt", "second", "Said: first", "not found", "being terminated"} {
			if !strings.Contains(told[i], want) {
				t.Errorf("result %d is %q, want %q in it", i, told[i], want)
			}
		}
		if p := h.of(child).phase(); p != dormouse.PhaseTerminated {
			t.Errorf("the child is %s", p)
		}
		h.checked()
	})
}

func TestAChildMayDoNoMoreThanItsParent(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{
			{Name: "bash", Permission: dormouse.PermissionAsk}, {Name: "read"}, {Name: "edit", Permission: dormouse.PermissionAuto},
		}}})
		for _, tools := range [][]dormouse.ToolConfig{
			{{Name: "write"}},
			{{Name: "bash"}},
			{{Name: "bash", Permission: dormouse.PermissionAllow}},
			{{Name: "bash", Permission: dormouse.PermissionAuto}},
			{{Name: "edit", Permission: dormouse.PermissionAllow}},
		} {
			_, err := h.live.Create(t.Context(), dormouse.User("ada"), dormouse.Created{
				Parent: h.id, Recovery: dormouse.RecoverAuto, Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: tools},
			})
			if !errors.Is(err, dormouse.ErrInvalid) {
				t.Errorf("a child with %v: %v", tools, err)
			}
		}
		row, err := h.live.Create(t.Context(), dormouse.User("eve"), dormouse.Created{
			Parent: h.id, Recovery: dormouse.RecoverAuto, Tenant: "other",
			Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{
				{Name: "bash", Permission: dormouse.PermissionAsk}, {Name: "edit", Permission: dormouse.PermissionAuto},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		parent, err := h.live.Row(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		if row.Tenant != parent.Tenant || row.Owner != parent.Owner || row.Parent != h.id {
			t.Errorf("the child is %+v", row)
		}
	})
}

func TestNoChildIsMadeAfterItsParentEnded(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.store.failCreate(dormouse.ErrFull)
		h.mustPrompt("p", grow(`SCRIPT[{"text":"too late"}]`))
		settle(time.Second)
		if n := h.count(dormouse.ChildSpawned); n != 1 {
			t.Fatalf("%d children recorded", n)
		}
		if err := h.do(law.Terminate{Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		h.store.failCreate(nil)
		settle(time.Minute)
		if n := len(h.tree()); n != 1 {
			t.Errorf("%d sessions, want the parent alone", n)
		}
		if n := h.count(dormouse.ChildEnded); n != 1 {
			t.Errorf("the child that never was ended %d times", n)
		}
		h.checked()
	})
}

// The parent has made its child and cannot record that it did. If the child is deleted
// meanwhile, it must not be made, and act, once more.
func TestAChildThatWasDeletedIsNotMadeAgain(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.store.set(func(b store.Batch) (before, after error) {
			if countType(b.Events, dormouse.ChildStarted) > 0 {
				return dormouse.ErrUnavailable, nil
			}
			return nil, nil
		})
		h.mustPrompt("p", grow(script("effect child")))
		settle(5 * time.Second)
		child := h.of(h.tree()[1])
		if err := child.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(5 * time.Second)
		h.store.set(nil)
		settle(time.Minute)
		if n := h.boxes.effect("child"); n != 1 {
			t.Errorf("the child acted %d times", n)
		}
		if _, err := h.live.Row(t.Context(), child.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the child is still there: %v", err)
		}
		h.checked()
	})
}

func TestWhoeverMakesAChildIsToldThatItsParentEndedFirst(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.store.failCreate(dormouse.ErrUnavailable)
		made := make(chan error, 1)
		go func() {
			_, err := h.live.Create(t.Context(), dormouse.User("ada"), dormouse.Created{
				Parent: h.id, Agent: everyTool(), Recovery: dormouse.RecoverAuto,
			})
			made <- err
		}()
		settle(time.Second)
		if err := h.do(law.Terminate{Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		select {
		case err := <-made:
			if !errors.Is(err, dormouse.ErrTerminated) {
				t.Error(err)
			}
		default:
			t.Error("it waits for a child that nobody makes")
		}
	})
}

func TestAChildThatPeopleEndedGivesItsPlaceBack(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"leaf"}]`))
		settle(time.Second)
		if err := h.of(h.tree()[1]).do(law.Terminate{Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		state, err := h.live.Peek(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Children) != 0 || state.Offspring != dormouse.MaxOffspring {
			t.Errorf("%d children are at work, %d more may be", len(state.Children), state.Offspring)
		}
		if n := h.count(dormouse.ChildEnded); n != 1 {
			t.Errorf("the child ended %d times", n)
		}
		h.checked()
	})
}

// A child that ends by itself frees its place, though the server dies before it could
// say so, and whatever keeps it from saying so.
func TestAChildsEndIsToldUntilItsParentHasRecordedIt(t *testing.T) {
	for name, harm := range map[string]func(h *house) (end func()){
		"the server dies": func(h *house) func() {
			return func() { h.crash() }
		},
		"the parent cannot be written": func(h *house) func() {
			h.full(func(b store.Batch) bool { return b.Session == h.id })
			return func() { settle(10 * time.Second); h.store.set(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Agent: everyTool()})
				h.mustPrompt("p", grow(`SCRIPT[{"text":"done"}]`))
				settle(time.Minute)
				child := h.of(h.tree()[1])
				heal := harm(h)
				if err := child.do(law.Terminate{Reason: "a person ended it"}); err != nil {
					t.Fatal(err)
				}
				heal()
				settle(time.Minute)
				s := h.state()
				if len(s.Children) != 0 || s.Offspring != dormouse.MaxOffspring || h.count(dormouse.ChildEnded) != 1 {
					t.Errorf("the parent has children %+v and may have %d more below it", s.Children, s.Offspring)
				}
				if events := child.checked(); countType(events, dormouse.ParentTold) != 1 {
					t.Errorf("it was recorded %d times that the parent knows", countType(events, dormouse.ParentTold))
				}
				if row, err := h.live.Row(t.Context(), child.id); err != nil || !row.Due.IsZero() {
					t.Errorf("the child is due at %s, %v", row.Due, err)
				}
				h.checked()
			})
		})
	}
}

// A child that is deleted is there until its parent knows.
func TestADeletedChildFreesItsPlaceBeforeItIsGone(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"done"}]`))
		settle(time.Minute)
		child := h.tree()[1]
		if err := h.of(child).do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		h.crash()
		settle(time.Minute)
		if _, err := h.live.Row(t.Context(), child); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the child: %v", err)
		}
		if s := h.state(); len(s.Children) != 0 {
			t.Errorf("the parent has children %+v", s.Children)
		}
	})
}

// What a parent sends its child leaves it under a lease. If another server has the
// parent by the time it arrives, it comes too late.
func TestAParentThatLostItsLeaseSendsItsChildNothing(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{Agent: everyTool()})
		a.mustPrompt("p", grow(`SCRIPT[{"text":"done"}]`))
		settle(10 * time.Minute) // no server has either in memory
		child := b.of(a.tree()[1])
		child.mustPrompt("mine", `SCRIPT[{"text":"here"}]`)
		settle(time.Second)
		late := 0
		f.meanwhile = func(id dormouse.SessionID, v law.Verb) {
			if _, ok := v.(law.Prompt); ok && id == child.id {
				if late++; late == 1 {
					if _, err := a.view.Server.Claim(t.Context(), a.id, 0); err != nil {
						t.Error(err)
					}
				}
			}
		}
		a.mustPrompt("m", says(use("child_message", map[string]any{"child": child.id, "prompt": `SCRIPT[{"text":"too late"}]`})))
		settle(time.Minute)
		if late != 1 {
			t.Fatalf("%d messages were on their way", late)
		}
		if n := countType(child.log(), dormouse.PromptQueued); n != 2 {
			t.Errorf("the child has %d prompts, want that of its spawning and mine", n)
		}
		// The server that has the parent next sends it, under its own lease and once.
		if err := a.do(law.Describe{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if n := countType(child.log(), dormouse.PromptQueued); n != 3 || late != 2 {
			t.Errorf("the child has %d prompts after %d messages, want 3 after 2", n, late)
		}
		child.mustPrompt("more", `SCRIPT[{"text":"still here"}]`)
		if stale := b.live.Counts().Stale; stale != 0 {
			t.Errorf("the child's own server was taken for stale %d times", stale)
		}
	})
}

// birthWatcher tells of children that are born, before their parent has prompted them.
type birthWatcher struct {
	store.Store
	born func(dormouse.SessionID)
}

func (s *birthWatcher) Create(ctx context.Context, b store.Batch) error {
	err := s.Store.Create(ctx, b)
	if err == nil && b.Under != nil {
		s.born(b.Session)
	}
	return err
}

// Whatever ids clients give, a child gets the prompt that it was made for, once.
func TestAClientCannotTakeThePromptIDOfAChild(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		var child *house
		h.reopen(func(s store.Store) store.Store {
			return &birthWatcher{Store: s, born: func(id dormouse.SessionID) {
				if child == nil {
					child = h.of(id)
					child.mustPrompt("spawn", "hello")
				}
			}}
		})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"grown"}]`))
		settle(time.Minute)
		if c := h.state().Children; len(c) != 1 || !c[0].Started {
			t.Fatalf("its children are %+v", c)
		}
		h.crash()
		settle(time.Minute)
		if n := countType(child.log(), dormouse.UserMessage); n != 2 {
			t.Errorf("the child has %d prompts, want that of the client and that of its parent", n)
		}
	})
}
