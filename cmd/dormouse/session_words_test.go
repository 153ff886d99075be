package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
)

func TestFactsAreDescribedInWords(t *testing.T) {
	due := time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)
	title := "new"
	for _, c := range []struct {
		event   dormouse.EventType
		payload any
		want    string
	}{
		{dormouse.QuestionAsked, dormouse.Question{Use: "sevt_a", Expires: due}, "? asks sevt_a, until " + at(due)},
		{dormouse.QuestionAnswered, dormouse.Question{Use: "sevt_a", Content: []dormouse.Block{dormouse.Text("x")}}, "— answered by user:ada"},
		{dormouse.QuestionExpired, dormouse.Question{Use: "sevt_a", Expires: due}, "! nobody answered sevt_a in time"},
		{
			dormouse.WakeupScheduled,
			dormouse.Wakeup{ID: "wake_a", At: due, Content: []dormouse.Block{dormouse.Text("look\nagain")}},
			"— wake-up wake_a is due at " + at(due) + ": look again",
		},
		{
			dormouse.WakeupScheduled,
			dormouse.Wakeup{ID: "wake_a", At: due, Cron: "0 9 * * *", Content: []dormouse.Block{dormouse.Text("x")}},
			"— wake-up wake_a is due at " + at(due) + " and then by 0 9 * * *: x",
		},
		{dormouse.WakeupFired, dormouse.WakeupFact{ID: "wake_a", Prompt: "sevt_p", Due: due}, "— wake-up wake_a fired"},
		{dormouse.WakeupFired, dormouse.WakeupFact{ID: "wake_a", Next: due, Reason: "the queue is full"}, "! wake-up wake_a fired, next at " + at(due) + "; the queue is full"},
		{dormouse.WakeupCancelled, dormouse.WakeupFact{ID: "wake_a", Reason: "requested"}, "— wake-up wake_a cancelled: requested"},
		{
			dormouse.ChildSpawned,
			dormouse.Spawned{Child: dormouse.Created{Session: "sesn_c", Title: "helper"}, Prompt: []dormouse.Block{dormouse.Text("x")}},
			"— child sesn_c is being made: helper",
		},
		{dormouse.ChildStarted, dormouse.ChildFact{Child: "sesn_c"}, "— child sesn_c started"},
		{dormouse.ChildEnding, dormouse.ChildFact{Child: "sesn_c", Reason: "requested"}, "— child sesn_c is being ended: requested"},
		{dormouse.ChildEnded, dormouse.ChildFact{Child: "sesn_c", Reason: "terminated"}, "— child sesn_c ended: terminated"},
		{dormouse.SessionThreadCreated, dormouse.ThreadCreated{Thread: "sthr_a"}, "— thread sthr_a opened"},
		{dormouse.SessionUpdated, dormouse.Update{Title: &title}, "— title: new"},
		{dormouse.SessionUpdated, dormouse.Update{Metadata: map[string]string{"a": "b"}}, "— metadata changed"},
		{dormouse.SessionTagged, dormouse.Tagging{Tags: []string{"a", "b"}}, "— tags: a, b"},
		{dormouse.SessionArchived, nil, "— archived"},
		{dormouse.SessionDeleted, nil, "— deleted"},
		{dormouse.OpUnknown, dormouse.OpEnd{Kind: dormouse.OpExec, Outcome: "its sandbox is gone"}, "! the outcome of a exec cannot be known: its sandbox is gone"},
		{dormouse.SnapshotAskedFor, dormouse.SnapshotAsk{ID: "snap_a", Label: "here"}, ""},
		{dormouse.SnapshotTaken, dormouse.Snapshot{ID: "snap_a", Reason: dormouse.SnapshotOfTurn, At: 7}, "— snapshot snap_a"},
		{dormouse.SnapshotTaken, dormouse.Snapshot{ID: "snap_a", Label: "be\nfore", Reason: dormouse.SnapshotAsked}, "— snapshot snap_a: be fore"},
		{dormouse.SnapshotSkipped, dormouse.SnapshotSkip{ID: "snap_a", Reason: dormouse.SnapshotOfTurn}, ""},
		{dormouse.SnapshotSkipped, dormouse.SnapshotSkip{ID: "snap_a", Error: "no room"}, "! snapshot snap_a was not taken: no room"},
		{dormouse.SnapshotDeleted, dormouse.SnapshotsGone{IDs: []dormouse.SnapshotID{"snap_a", "snap_b"}, Reason: "retention"}, "— deleted snap_a, snap_b: retention"},
		{dormouse.WorkspaceSwapped, dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapRestored}, "— the files are those of snap_a"},
		{dormouse.WorkspaceSwapped, dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapSealed}, ""},
		{dormouse.HistoryTruncated, dormouse.Truncation{To: 7}, "— what was said after event 7 is no part of the conversation any more"},
		{dormouse.AgentMessage, dormouse.Message{Content: []dormouse.Block{dormouse.Text("x")}}, ""},
		{dormouse.TurnStarted, dormouse.TurnFact{Turn: "turn_a"}, ""},
	} {
		e := dormouse.Event{Type: c.event, Actor: dormouse.User("ada")}
		if c.payload != nil {
			e.Payload = dormouse.Encode(c.payload)
		}
		if got, err := inWords(e); got != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", c.event, got, err, c.want)
		}
	}
}

// Two threads that speak at once are not woven into each other.
func TestOneThreadHasTheFloor(t *testing.T) {
	var out strings.Builder
	p := &printer{
		out: &out, said: make(map[dormouse.ThreadID]*strings.Builder),
		streamed: make(map[dormouse.EventID]string), muted: make(map[string]bool),
	}
	delta := func(thread dormouse.ThreadID, op dormouse.OpID, use dormouse.EventID, text string) {
		p.delta(dormouse.Delta{Thread: thread, Op: op, Use: use, Text: text})
	}
	event := func(kind dormouse.EventType, thread dormouse.ThreadID, payload any) {
		if err := p.event(dormouse.Event{Type: kind, Thread: thread, Payload: dormouse.Encode(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	message := func(text string) dormouse.Message {
		return dormouse.Message{Content: []dormouse.Block{dormouse.Text(text)}}
	}
	delta("a", "op_1", "", "one ")
	delta("b", "op_2", "", "eins ")
	delta("a", "op_1", "", "two ")
	delta("b", "op_2", "", "zwei ")
	event(dormouse.AgentMessage, "b", message("eins zwei drei"))
	delta("a", "op_1", "", "three")
	delta("b", "", "sevt_u", "half ")
	event(dormouse.AgentMessage, "a", message("one two three"))
	delta("b", "", "sevt_u", "an output")
	event(dormouse.AgentToolResult, "b", dormouse.ToolResult{Use: "sevt_u", Content: []dormouse.Block{dormouse.Text("half an output")}})
	const want = "one two \n— on b\neins zwei drei\n— on a\nthree\n— on b\n  half an output\n"
	if out.String() != want {
		t.Errorf("shown\n%s\nwant\n%s", out.String(), want)
	}
}
