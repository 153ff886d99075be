package session_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// living counts the sandboxes in which something runs.
func (b *boxes) living() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, box := range b.boxes {
		if !box.dead {
			n++
		}
	}
	return n
}

// damaged makes a session whose sandbox is awake, breaks its log by hurt while no
// server has it loaded, and has the next server find it.
func (h *house) damaged(c dormouse.Created, hurt func()) {
	h.t.Helper()
	h.create(c)
	h.mustPrompt("one", script("effect a"))
	settle(time.Second)
	if h.boxes.living() == 0 {
		h.t.Fatalf("no sandbox is awake: %s", dump(h.log()))
	}
	hurt()
	h.crash()
}

func (h *house) damage() string {
	h.t.Helper()
	row, err := h.store.Session(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	return row.Damage
}

func TestDamagedSessionSaysSoAndCanBeEndedAndDeleted(t *testing.T) {
	for _, seq := range []uint64{1, 3} {
		live(t, func(t *testing.T, h *house) {
			h.damaged(dormouse.Created{Title: "hurt", Tenant: "acme", SleepAfter: time.Minute}, func() { h.store.spoil(seq) })
			if err := h.prompt("two", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
				t.Errorf("a prompt to it = %v, want ErrDamaged", err)
			}
			_, err := h.live.Peek(t.Context(), h.id)
			if !errors.Is(err, dormouse.ErrDamaged) || errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("peek = %v, want ErrDamaged", err)
			}
			state, row, err := h.live.Remains(t.Context(), h.id, err)
			if err != nil || state.Title != "hurt" || row.Tenant != "acme" || !strings.Contains(row.Damage, "a byte has flipped") {
				t.Errorf("what remains is %+v, %v", row, err)
			}
			settle(time.Second)
			if d := h.damage(); !strings.Contains(d, "a byte has flipped") {
				t.Errorf("lists say of it %q", d)
			}
			if n := h.boxes.living(); n != 0 {
				t.Errorf("%d of its sandboxes go on", n)
			}
			before := h.store.claimed()
			settle(30 * time.Minute)
			if n := h.store.claimed() - before; n > 1 {
				t.Errorf("it was loaded %d times in half an hour", n)
			}
			events, err := h.live.Events(t.Context(), h.id, 0, 100)
			if n := len(events); seq > 1 && (err != nil || uint64(n) != seq-1) {
				t.Errorf("%d events before the damage, %v", n, err)
			}
			if err := h.do(law.Terminate{Reason: "no use"}); err != nil {
				t.Fatalf("terminate = %v", err)
			}
			if p := h.phase(); p != dormouse.PhaseTerminated {
				t.Errorf("it is %s", p)
			}
			h.crash()
			if err := h.do(law.Delete{}); err != nil {
				t.Fatalf("delete = %v", err)
			}
			settle(time.Minute)
			if row, err := h.store.Session(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("after deletion it is %s, %v", row.Phase, err)
			}
		})
	}
}

// A blob that session.created names is as much of the log as its rows.
func TestLostBlobOfTheFirstEventDoesNotMakeASessionUnreachable(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		c := dormouse.Created{Title: "hurt", SleepAfter: time.Minute}
		c.Agent.System = strings.Repeat("a long instruction ", 4000)
		var kept map[dormouse.Digest][]byte
		h.damaged(c, func() {
			h.blobs.mu.Lock()
			defer h.blobs.mu.Unlock()
			kept = maps.Clone(h.blobs.m)
			clear(h.blobs.m)
		})
		if err := h.prompt("two", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
			t.Errorf("a prompt to it = %v, want ErrDamaged", err)
		}
		settle(time.Second)
		if h.damage() == "" || h.boxes.living() != 0 {
			t.Errorf("lists say %q, and %d sandboxes go on", h.damage(), h.boxes.living())
		}
		// It mends itself when the bytes come back.
		h.blobs.mu.Lock()
		maps.Copy(h.blobs.m, kept)
		h.blobs.mu.Unlock()
		settle(2 * time.Minute)
		if d := h.damage(); d != "" {
			t.Errorf("lists still say %q", d)
		}
		h.mustPrompt("two", `SCRIPT[{"text":"here I am"}]`)
		settle(time.Minute)
		if texts := h.texts(); len(texts) == 0 || texts[len(texts)-1] != "here I am" {
			t.Errorf("it said %q", texts)
		}
		h.checked()
	})
}

// A request for a session that was damaged is answered as soon as the session can be
// read.
func TestDamagedSessionIsLookedAtWhenSomebodyAsks(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.damaged(dormouse.Created{SleepAfter: time.Minute}, func() { h.store.spoil(2) })
		settle(30 * time.Minute)
		h.store.spoil(0)
		h.mustPrompt("two", `SCRIPT[{"text":"here I am"}]`)
		if d := h.damage(); d != "" {
			t.Errorf("lists still say %q", d)
		}
		settle(time.Minute)
		h.checked()
	})
}
