package law_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestARequestIsKnownByItsNameAsLongAsTheSessionLives(t *testing.T) {
	w := warm(t, dormouse.Created{})
	request := func(name, text string) law.Send {
		p := w.prompt(name + text)
		return law.Send{Request: dormouse.EventID("sevt_" + name), Body: dormouse.DigestOf([]byte(text)), Steps: []law.Step{{Prompt: &p}}}
	}
	w.must(request("first", "a"))
	for i := range 400 {
		w.must(request(fmt.Sprint("other", i), "b"))
		w.must(law.Interrupt{ID: dormouse.EventID(fmt.Sprint("sevt_i", i)), Flush: true})
	}
	if events, err := w.try(request("first", "a")); err != nil || len(events) > 0 {
		t.Errorf("the same request again: %d events, %v", len(events), err)
	}
	if _, err := w.try(request("first", "c")); !errors.Is(err, law.ErrOtherRequest) {
		t.Errorf("another request under the same name: %v", err)
	}
	if size := len(dormouse.Encode(w.state)); size > 4<<10 {
		t.Errorf("the state has %d bytes: ids must not be kept in it", size)
	}
}

// A branch begins with the conversation, and with none of the ids: clients may give
// them all again in it.
func TestABranchMayGiveTheIDsOfWhatItBranchedFrom(t *testing.T) {
	transcript := []dormouse.Event{
		{ID: "sevt_p", Type: dormouse.UserMessage, Payload: dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text("hello")}})},
		{ID: "sevt_a", Type: dormouse.UserCustomToolResult, Payload: dormouse.Encode(dormouse.CustomToolResult{Use: "sevt_u"})},
	}
	d, err := law.Decide(law.State{}, law.Command{Now: epoch0, Verb: law.Create{Transcript: transcript, Created: dormouse.Created{
		Session: "sesn_branch", Tenant: "default", Owner: dormouse.User("ada"), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "a", Model: "m"}, Branch: &dormouse.Branched{From: sid, At: 9, Transcript: len(transcript)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, rows := law.Project(law.State{}, d.Events); len(rows.ClientIDs) > 0 {
		t.Errorf("it begins with ids %v", rows.ClientIDs)
	}
}

// The log of a program that forgot ids may have one twice. Laying it out again keeps
// the first.
func TestALogWithDoubledIDsIsLaidOutWithTheFirstOfEach(t *testing.T) {
	w := warm(t, dormouse.Created{})
	w.must(run("sevt_x"), w.schedule("w"))
	log := w.log
	for _, e := range w.log {
		if e.Type == dormouse.ExecAsked || e.Type == dormouse.WakeupScheduled {
			e.Seq = log[len(log)-1].Seq + 1
			log = append(log, e)
		}
	}
	s := new(memory.Store)
	state, rows := law.Project(law.State{}, log)
	if err := s.Create(t.Context(), store.Batch{Session: sid, Events: log, Rows: &rows}); err != nil {
		t.Fatal(err)
	}
	rebuilt, err := history.Rebuild(t.Context(), s, nil, sid)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rebuild(t.Context(), sid, rebuilt); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"sevt_x": w.given["sevt_x"].Seq, "wake_w": w.given["wake_w"].Seq}
	got, err := s.ClientIDs(t.Context(), sid, "sevt_x", "wake_w")
	if diff := cmp.Diff(want, got); err != nil || diff != "" || state.Seq != uint64(len(log)) {
		t.Errorf("ids (-want +got), %v:\n%s", err, diff)
	}
}
