package law_test

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// What a log needs follows from its events alone, so that a rebuild finds the same.
func TestWhatALogNeedsIsTheMostOfItsEvents(t *testing.T) {
	w := newWorld(t, dormouse.Created{})
	if _, rows := law.Project(w.state, nil); rows.Session.Needs != 1 {
		t.Errorf("needs version %d, want 1", rows.Session.Needs)
	}
	state, rows := law.Project(w.state, []dormouse.Event{{Seq: w.state.Seq + 1, Type: "session.dreamt"}})
	if rows.Session.Needs != dormouse.LogVersion+1 {
		t.Errorf("after an event of a newer program it needs version %d", rows.Session.Needs)
	}
	if _, rows := law.Project(state, []dormouse.Event{{Seq: state.Seq + 1, Type: dormouse.AgentMessage}}); rows.Session.Needs != dormouse.LogVersion+1 {
		t.Errorf("after another one it needs version %d", rows.Session.Needs)
	}
}
