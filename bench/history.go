package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// history writes a session's past as its actor would have: decided by the law, derived by
// its projection, appended under an epoch. Only model calls take no time.
type history struct {
	store  store.Store
	id     dormouse.SessionID
	thread dormouse.ThreadID
	epoch  store.Epoch
	state  law.State
	said   int
}

// owner is the one user of a server on one machine.
const (
	owner  = dormouse.Actor("user:local")
	tenant = "local"
)

func newHistory(ctx context.Context, s store.Store, title string) (*history, error) {
	h := &history{store: s, id: dormouse.SessionID(session.NewID(dormouse.SessionPrefix))}
	h.thread = dormouse.PrimaryThread(h.id)
	events, err := h.decide(&h.state, law.Create{Created: dormouse.Created{
		Session: h.id, Tenant: tenant, Owner: owner, Title: title, Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "bench", Model: "scripted", Tools: []dormouse.ToolConfig{{Name: "bash"}}},
	}})
	if err != nil {
		return nil, err
	}
	_, rows := law.Project(law.State{}, events)
	if err := s.Create(ctx, store.Batch{Session: h.id, Events: events, Rows: &rows}); err != nil {
		return nil, err
	}
	h.epoch, err = s.Claim(ctx, h.id, 0)
	return h, err
}

// now is the time to the microsecond, which is how it is stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// decide adds what the law makes of a verb to s.
func (h *history) decide(s *law.State, v law.Verb) ([]dormouse.Event, error) {
	d, err := law.Decide(*s, law.Command{By: owner, Now: now(), Epoch: h.epoch, Verb: v})
	if err == nil {
		*s = d.State
	}
	return d.Events, err
}

// turns writes n whole turns in one append.
func (h *history) turns(ctx context.Context, n int) error {
	s := h.state
	var events []dormouse.Event
	for range n {
		added, err := h.turn(&s)
		if err != nil {
			return err
		}
		events = append(events, added...)
	}
	return h.commit(ctx, events)
}

// commit appends events with the rows that follow from them.
func (h *history) commit(ctx context.Context, events []dormouse.Event) error {
	next, rows := law.Project(h.state, events)
	err := h.store.Append(ctx, store.Batch{Session: h.id, Epoch: h.epoch, After: h.state.Seq, Events: events, Rows: &rows})
	if err == nil {
		h.state = next
	}
	return err
}

// turn is one prompt and the reply to it.
func (h *history) turn(s *law.State) (events []dormouse.Event, err error) {
	do := func(v law.Verb) {
		if err == nil {
			var added []dormouse.Event
			added, err = h.decide(s, v)
			events = append(events, added...)
		}
	}
	h.said++
	id := dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(h.id), fmt.Sprint("bench ", h.said)))
	asked := []dormouse.Block{dormouse.Text(fmt.Sprintf("What is in the file of day %d?", h.said))}
	do(law.Prompt{ID: id, Body: dormouse.DigestOf(dormouse.Encode(asked)), Content: asked})
	do(law.Take{Thread: h.thread, Prompt: id, Content: asked})
	if err != nil {
		return nil, err
	}
	work := law.Work{Turn: s.Thread(h.thread).Turn.ID}
	op := dormouse.Op{
		Kind: dormouse.OpModel, Args: dormouse.DigestOf([]byte(id)),
		Origin: dormouse.Origin{Thread: h.thread, Turn: work.Turn, Call: 1, Block: -1},
	}.Named(h.id)
	do(law.StartOp{Work: work, Op: op})
	reply := dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text(strings.Repeat("A long day. ", 20))}})
	do(law.FinishOp{
		Work: work, Op: op.ID, Outcome: dormouse.OutcomeOK, Stop: dormouse.StopEndTurn,
		Events: []dormouse.Event{{
			ID: dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(op.ID))), Type: dormouse.AgentMessage, Payload: reply,
		}},
	})
	do(law.EndTurn{Work: work})
	return events, err
}
