package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// dreamt is an event of a program that is newer than this one.
const dreamt dormouse.EventType = "session.dreamt"

// dreams are the ways in which a newer program goes on with a session: with an event that
// this one does not know, or with one that means something else to it; and with a row that
// lies, so that it does not say so.
var dreams = map[string]struct {
	kind dormouse.EventType
	lies bool
}{
	"as its row says":                          {dreamt, false},
	"as its row says of events that are known": {dormouse.AgentMessage, false},
	"though its row says nothing":              {dreamt, true},
}

// dream goes on with a session as a newer program does. It returns the epoch that was
// written under.
func dream(t *testing.T, s store.Store, id dormouse.SessionID, kind dormouse.EventType, lies bool) store.Epoch {
	t.Helper()
	row, err := s.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Epoch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	row.Seq++
	row.Due = dormouse.DueNow
	if !lies {
		row.Needs = dormouse.LogVersion + 1
	}
	e := dormouse.Event{Seq: row.Seq, ID: "sevt_dream", Type: kind, Actor: dormouse.ActorServer, Time: row.Updated, Payload: []byte(`{}`)}
	b := store.Batch{Session: id, Epoch: epoch, After: row.Seq - 1, Events: []dormouse.Event{e}, Rows: &dormouse.Rows{Session: row}}
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return epoch
}

func TestASessionOfANewerProgramIsRefusedAndLeftAsItIs(t *testing.T) {
	for name, c := range dreams {
		lies := c.lies
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Title: "dreaming", Tenant: "acme", SleepAfter: time.Minute})
				h.mustPrompt("one", script("effect a"))
				settle(time.Second)
				epoch := dream(t, h.store, h.id, c.kind, lies)
				h.crash()
				settle(time.Second)
				seq := uint64(len(h.log()))
				claims := h.store.claimed()
				err := h.prompt("two", "are you there?")
				if !errors.Is(err, dormouse.ErrNewerLog) || errors.Is(err, dormouse.ErrDamaged) {
					t.Fatalf("a prompt = %v, want ErrNewerLog", err)
				}
				for _, want := range []string{string(h.id), "newer program", "nothing was changed", "ask a server of the newer version or upgrade this one"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the refusal does not say %q: %v", want, err)
					}
				}
				if _, err := h.live.Peek(t.Context(), h.id); !errors.Is(err, dormouse.ErrNewerLog) {
					t.Errorf("peek = %v, want ErrNewerLog", err)
				}
				if err := h.do(law.Delete{}); !errors.Is(err, dormouse.ErrNewerLog) {
					t.Errorf("delete = %v, want ErrNewerLog", err)
				}
				settle(30 * time.Minute)
				// The claim that was asked for is granted if the row lies, and given up again.
				if n := h.store.claimed() - claims; n > 3 {
					t.Errorf("it was claimed %d times in half an hour", n)
				}
				row, err := h.live.Row(t.Context(), h.id)
				if err != nil || row.Damage != "" || row.Seq != seq || row.Title != "dreaming" {
					t.Errorf("its row is %+v, %v", row, err)
				}
				listed, err := h.live.List(t.Context(), session.Query{Tenant: "acme", Limit: 5})
				if err != nil || len(listed) != 1 || !lies && !strings.Contains(listed[0].Newer, "needs version 2") {
					t.Errorf("listed are %+v, %v", listed, err)
				}
				if now, err := h.store.Epoch(t.Context(), h.id); err != nil || !lies && now != epoch {
					t.Errorf("epoch is %d, %v, and was %d", now, err, epoch)
				}
				if n := h.boxes.living(); n != 1 {
					t.Errorf("%d sandboxes live, want the one that it had", n)
				}
				if events, err := h.live.Events(t.Context(), h.id, 0, 100); err != nil || uint64(len(events)) != seq {
					t.Errorf("%d events can be read, %v, want %d", len(events), err, seq)
				}
			})
		})
	}
}

func TestASessionOfANewerProgramIsNotTakenOver(t *testing.T) {
	for name, c := range dreams {
		lies := c.lies
		t.Run(name, func(t *testing.T) {
			together(t, 2, func(t *testing.T, f *cluster) {
				a, b := f.servers[0], f.servers[1]
				a.create(dormouse.Created{})
				a.mustPrompt("p", script("effect a; sleep 1h"))
				settle(10 * time.Second)
				a.kill()
				epoch := dream(t, f.store, a.id, c.kind, lies)
				settle(lease + 10*time.Second)
				b.on(a)
				free := func(when string) {
					t.Helper()
					places, err := b.view.Where(t.Context(), a.id)
					if err != nil || len(places) != 1 || places[0].Owner != nil {
						t.Errorf("%s: it is at %+v, %v", when, places, err)
					}
				}
				free("after the lease")
				if err := b.prompt("q", "are you there?"); !errors.Is(err, dormouse.ErrNewerLog) {
					t.Errorf("a prompt = %v, want ErrNewerLog", err)
				}
				settle(time.Second)
				free("after a prompt")
				if now, err := f.store.Epoch(t.Context(), a.id); err != nil || !lies && now != epoch || now > epoch+2 {
					t.Errorf("epoch is %d, %v, and was %d", now, err, epoch)
				}
				b.create(dormouse.Created{})
				b.mustPrompt("r", script("effect b"))
				settle(time.Minute)
				if n := f.boxes.effect("b"); n != 1 {
					t.Errorf("%d effects of a session that it can serve", n)
				}
			})
		})
	}
}
