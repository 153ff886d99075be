package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Given is the log of a session as a program left it that forgot the ids of clients:
// some were given twice.
type Given struct {
	Session dormouse.SessionID
	Events  []dormouse.Event
	// IDs is what each id must be found to have been given to, and Doubles how many
	// events had one that was given before.
	IDs     map[string]uint64
	Doubles int
}

// NewGiven lays such a log out.
func NewGiven() Given {
	g := Given{Session: sessionID(1), IDs: make(map[string]uint64)}
	add := func(id string, kind dormouse.EventType, payload any) uint64 {
		e := event(g.Session, uint64(len(g.Events))+1, kind)
		if id != "" {
			e.ID = dormouse.EventID(id)
		}
		e.Payload = dormouse.Encode(payload)
		g.Events = append(g.Events, e)
		return e.Seq
	}
	first := func(id string, seq uint64) {
		if g.IDs[id] == 0 {
			g.IDs[id] = seq
			return
		}
		g.Doubles++
	}
	spawned := dormouse.Spawned{Child: dormouse.Created{Session: "sesn_child", Title: "\xff not text"}}

	add("", dormouse.SessionCreated, dormouse.Created{Session: g.Session})
	add("sevt_talk", dormouse.UserCustomToolResult, dormouse.CustomToolResult{Use: "sevt_u"}) // a branch began with it
	add("", dormouse.OpStarted, dormouse.OpFact{})
	for range 3 {
		first("sevt_exec", add("sevt_exec", dormouse.ExecAsked, dormouse.ExecAsk{Exec: "sevt_exec", Command: "date"}))
		first("wake_1", add("", dormouse.WakeupScheduled, dormouse.Wakeup{ID: "wake_1", Content: []dormouse.Block{dormouse.Text("\u0000 \xff")}}))
	}
	first("sevt_prompt", add("sevt_prompt", dormouse.PromptQueued, dormouse.PromptBody{Prompt: "sevt_prompt"}))
	first("sevt_custom", add("sevt_custom", dormouse.UserCustomToolResult, dormouse.CustomToolResult{Use: "sevt_u"}))
	first("sevt_allow", add("sevt_allow", dormouse.UserToolConfirmation, dormouse.ToolConfirmation{Use: "sevt_u"}))
	first("sevt_words", add("sevt_words", dormouse.QuestionAnswered, dormouse.Question{Use: "sevt_u"}))
	first("sevt_request", add("", dormouse.RequestTaken, dormouse.Taken{Request: "sevt_request", Body: "sha256:1"}))
	first("sesn_child", add("", dormouse.ChildSpawned, spawned))
	add("", dormouse.ChildEnded, dormouse.ChildFact{Child: "sesn_child"})
	// What was scheduled and spawned here rests in blobs.
	large := add("", dormouse.WakeupScheduled, nil)
	g.Events[large-1].Payload, g.Events[large-1].Blob = nil, "sha256:large"
	g.IDs["wake_2"] = add("", dormouse.WakeupFired, dormouse.WakeupFact{ID: "wake_2"})
	add("", dormouse.WakeupFired, dormouse.WakeupFact{ID: "wake_2"})
	g.IDs["sesn_large"] = add("", dormouse.ChildStarted, dormouse.ChildFact{Child: "sesn_large"})
	// Another may have any of them.
	add("sevt_exec2", dormouse.AgentMessage, dormouse.Message{})
	return g
}

// Check holds a store that was opened over the log against what must be found, and
// said against what must have been said of it.
func (g Given) Check(t *testing.T, s store.Store, said string) {
	t.Helper()
	ids := []string{"sevt_talk", "sevt_exec2"} // which no client gave here
	for id := range g.IDs {
		ids = append(ids, id)
	}
	found, err := s.ClientIDs(t.Context(), g.Session, ids...)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "client ids", found, g.IDs)
	if want := fmt.Sprintf("%d requests had an id", g.Doubles); !strings.Contains(said, want) {
		t.Errorf("the migration said %q, want %q in it", said, want)
	}
}
