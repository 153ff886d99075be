package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// withChild makes a session and a child that has done its work.
func (h *house) withChild(c dormouse.Created) (child *house) {
	h.t.Helper()
	h.create(c)
	h.mustPrompt("p", grow(script("effect child")))
	settle(time.Minute)
	tree := h.tree()
	if len(tree) != 2 {
		h.t.Fatalf("%d sessions, want 2", len(tree))
	}
	return h.of(tree[1])
}

// crashed has the next server find what became of a parent.
func (h *house) crashed(child *house) {
	h.crash()
	child.live = h.live
	settle(time.Second)
}

func (h *house) children() []law.Child {
	h.t.Helper()
	s, err := h.live.Peek(h.t.Context(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	return s.Children
}

func TestAParentWhoseBlobIsMissingIsNotTakenForGone(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		child := h.withChild(large())
		mount := h.blobs.unmount()
		h.crashed(child)
		if err := h.prompt("q", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
			t.Fatalf("a prompt to the parent = %v, want ErrDamaged", err)
		}
		if err := child.do(law.Terminate{Reason: "a person ended it"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if n := child.count(dormouse.ParentTold); n != 0 {
			t.Errorf("the child says that its parent, which cannot be read, knows of its end")
		}
		mount()
		settle(10 * time.Minute)
		if c := h.children(); len(c) != 0 {
			t.Errorf("the parent keeps the place of a child that has ended: %+v", c)
		}
		if n := child.count(dormouse.ParentTold); n != 1 {
			t.Errorf("the child has told its parent %d times", n)
		}
		h.checked()
		child.checked()
	})
}

func TestAChildIsDeletedThoughItsParentIsDamaged(t *testing.T) {
	for name, ended := range map[string]bool{"deleted at once": false, "terminated before": true} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				child := h.withChild(dormouse.Created{Agent: everyTool()})
				h.store.spoilOf(h.id, 2)
				h.crashed(child)
				if ended {
					if err := child.do(law.Terminate{Reason: "a person ended it"}); err != nil {
						t.Fatal(err)
					}
					settle(10 * time.Minute)
				}
				if err := child.do(law.Delete{}); err != nil {
					t.Fatal(err)
				}
				settle(10 * time.Second)
				if _, err := h.live.Row(t.Context(), child.id); !errors.Is(err, dormouse.ErrNotFound) {
					t.Fatalf("the child is still there: %v", err)
				}
				// The parent finds out when it can be read again, under whichever server.
				h.store.spoil(0)
				h.crashed(child)
				settle(2 * time.Minute)
				if c := h.children(); len(c) != 0 {
					t.Errorf("the parent keeps the place of a child that is gone: %+v", c)
				}
				h.checked()
			})
		})
	}
}

// A parent that has not recorded that its child is there makes it when it can be read again.
func TestADeletedChildOfADamagedParentIsNotMadeAgain(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.store.set(func(b store.Batch) (error, error) {
			if countType(b.Events, dormouse.ChildStarted) > 0 {
				return dormouse.ErrFull, nil
			}
			return nil, nil
		})
		h.mustPrompt("p", grow(script("effect child")))
		settle(time.Minute)
		child := h.of(h.tree()[1])
		h.store.spoilOf(h.id, 2)
		h.close() // and is not there to make it
		h.store.set(nil)
		h.open()
		child.live = h.live
		if err := child.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Minute)
		before := h.store.readOf(h.id)
		settle(time.Hour)
		if n := h.store.readOf(h.id) - before; n > 6*60 {
			t.Errorf("the log of the parent was read %d times in an hour", n)
		}
		h.store.spoil(0)
		settle(10 * time.Minute)
		if _, err := h.live.Row(t.Context(), child.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the child is still there: %v", err)
		}
		if c, n := h.children(), h.boxes.effect("child"); len(c) != 0 || n != 1 {
			t.Errorf("the parent has the children %+v, and the child acted %d times", c, n)
		}
		h.checked()
	})
}

// An ended child tells its parent again and again; that does not have a damaged log read.
func TestChildrenDoNotHaveADamagedParentReadAgainAndAgain(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		child := h.withChild(dormouse.Created{Agent: everyTool()})
		h.store.spoilOf(h.id, 2)
		h.crashed(child)
		if err := child.do(law.Terminate{Reason: "a person ended it"}); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Minute)
		before := h.store.readOf(h.id)
		settle(time.Hour)
		if n := h.store.readOf(h.id) - before; n < 55 || n > 65 {
			t.Errorf("the log was read %d times in an hour, want once a minute", n)
		}
		h.store.spoil(0)
		settle(2 * time.Minute)
		if d, c := h.damage(), h.children(); d != "" || len(c) != 0 {
			t.Errorf("when it can be read again lists say %q, and its children are %+v", d, c)
		}
	})
}

func TestAnAgentIsToldThatAChildIsDamaged(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		child := h.withChild(dormouse.Created{Agent: everyTool()})
		h.store.spoilOf(child.id, 2)
		h.crashed(child)
		h.mustPrompt("q", says(use("child_message", map[string]any{"child": child.id, "prompt": "go on"})))
		settle(time.Minute)
		told := h.results()
		if n := len(told); n != 2 || !strings.Contains(told[n-1], "cannot be read") {
			t.Errorf("the agent was told %q", told)
		}
		if d := h.damage(); d != "" {
			t.Errorf("lists say of the parent %q", d)
		}
		if p := h.phase(); p != ready && p != hibernated {
			t.Errorf("the parent is %s", p)
		}
	})
}
