package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
)

// historyOf is the history that events make, each with its place in the list as its seq.
func historyOf(t *testing.T, events ...any) *history {
	t.Helper()
	l := &history{places: make(map[string]int)}
	for i, v := range events {
		e := dormouse.Event{Seq: uint64(i + 1), Time: time.Now().Add(-90 * time.Minute)}
		switch p := v.(type) {
		case nil:
			continue
		case dormouse.TurnFact:
			e.Type = dormouse.TurnStarted
			if p.Outcome != "" {
				e.Type = dormouse.TurnEnded
			}
		case dormouse.Message:
			e.Type, e.ID = dormouse.UserMessage, dormouse.EventID(p.Content[0].Type)
			p.Content[0].Type = "text"
		case dormouse.Snapshot:
			e.Type = dormouse.SnapshotTaken
		case dormouse.SnapshotsGone:
			e.Type = dormouse.SnapshotDeleted
		case dormouse.WorkspaceSwap:
			e.Type = dormouse.WorkspaceSwapped
		case dormouse.Truncation:
			e.Type = dormouse.HistoryTruncated
		}
		e.Payload = dormouse.Encode(v)
		if err := l.add(e); err != nil {
			t.Fatal(err)
		}
	}
	l.finish()
	return l
}

func begins(turn dormouse.TurnID, prompt dormouse.EventID) dormouse.TurnFact {
	return dormouse.TurnFact{Turn: turn, Prompts: []dormouse.EventID{prompt}}
}

func says(prompt, text string) dormouse.Message {
	return dormouse.Message{Content: []dormouse.Block{{Type: prompt, Text: text}}}
}

func ends(turn dormouse.TurnID, how string) dormouse.TurnFact {
	return dormouse.TurnFact{Turn: turn, Outcome: how}
}

func took(id dormouse.SnapshotID, at uint64, label string, bytes int64) dormouse.Snapshot {
	return dormouse.Snapshot{ID: id, At: at, Label: label, Reason: dormouse.SnapshotOfTurn, Layers: []dormouse.Layer{{Bytes: bytes}}}
}

// drawn is what is shown of all steps, newest first.
func drawn(t *testing.T, l *history, graph bool) string {
	t.Helper()
	var b strings.Builder
	if err := draw(&b, l.shown(graph)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestALogShowsWhatWasRevertedBesideTheHistory(t *testing.T) {
	l := historyOf(t,
		begins("turn_a", "sevt_a"), says("sevt_a", "$ make\nall"), ends("turn_a", dormouse.TurnCompleted), took("snap_a", 3, "", 10), // 1 to 4
		begins("turn_b", "sevt_b"), says("sevt_b", "$ break"), ends("turn_b", dormouse.TurnFailed), took("snap_b", 7, "bad", 2048), // 5 to 8
		dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapRestored}, // 9
		dormouse.SnapshotsGone{IDs: []dormouse.SnapshotID{"snap_b"}}, dormouse.Truncation{To: 4},
		begins("turn_c", "sevt_c"), says("sevt_c", "$ mend"), ends("turn_c", dormouse.TurnCompleted), took("snap_c", 14, "good", 12), // 12 to 15
		dormouse.WorkspaceSwap{Snapshot: "snap_c", Reason: dormouse.SwapSealed}, dormouse.SnapshotsGone{IDs: []dormouse.SnapshotID{"snap_a"}},
	)
	const graph = `* snap_c    1h ago  turn, 12 B, good (newest)
o sevt_c    1h ago  $ mend
< snap_a    1h ago  went back to it
| x snap_b  1h ago  turn, 2.0 KiB, bad (reverted)
| x sevt_b  1h ago  $ break (failed) (reverted)
|/
x snap_a    1h ago  turn, 10 B (deleted)
o sevt_a    1h ago  $ make all
`
	if got := drawn(t, l, true); got != graph {
		t.Errorf("drawn\n%s\nwant\n%s", got, graph)
	}
	const plain = `* snap_c  1h ago  turn, 12 B, good (newest)
o sevt_c  1h ago  $ mend
< snap_a  1h ago  went back to it
o sevt_a  1h ago  $ make all
`
	if got := drawn(t, l, false); got != plain {
		t.Errorf("shown\n%s\nwant\n%s", got, plain)
	}
	if last, ok := l.last(); !ok || last.Prompt != "sevt_c" {
		t.Errorf("the last is %+v", last)
	}
}

func TestALogShowsWhatWasRevertedTwice(t *testing.T) {
	back := dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapRestored}
	l := historyOf(t,
		took("snap_a", 1, "", 1),
		begins("turn_b", "sevt_b"), says("sevt_b", "two"), // 2
		begins("turn_c", "sevt_c"), says("sevt_c", "three"), // 4
		back, dormouse.Truncation{To: 3}, // 6
		begins("turn_d", "sevt_d"), says("sevt_d", "four"), // 8
		back, dormouse.Truncation{To: 1}, // 10
	)
	const graph = `< snap_a      1h ago  went back to it
| x sevt_d    1h ago  four (reverted)
| x snap_a    1h ago  went back to it (reverted)
| | x sevt_c  1h ago  three (reverted)
| |/
| x sevt_b    1h ago  two (reverted)
|/
* snap_a      1h ago  turn, 1 B (newest)
`
	if got := drawn(t, l, true); got != graph {
		t.Errorf("drawn\n%s\nwant\n%s", got, graph)
	}
	if last, ok := l.last(); ok {
		t.Errorf("the last is %+v", last)
	}
}

func TestRestoringFilesAloneLeavesTheHistory(t *testing.T) {
	l := historyOf(t,
		took("snap_a", 1, "", 1),
		begins("turn_b", "sevt_b"), says("sevt_b", "two"), took("snap_b", 3, "", 2),
		dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapRestored},
		dormouse.TurnFact{Turn: "turn_c", Prompts: []dormouse.EventID{"sevt_b"}, RetryOf: "turn_b"},
	)
	const graph = `o sevt_b  1h ago  two
< snap_a  1h ago  went back to its files
* snap_b  1h ago  turn, 2 B
o sevt_b  1h ago  two
* snap_a  1h ago  turn, 1 B (newest)
`
	if got := drawn(t, l, true); got != graph {
		t.Errorf("drawn\n%s\nwant\n%s", got, graph)
	}
}

func TestABranchBeginsWithWhatWasSaidBefore(t *testing.T) {
	l := historyOf(t,
		says("sevt_a", "one"),
		dormouse.WorkspaceSwap{Snapshot: "snap_a", Reason: dormouse.SwapBranched, Origin: "sesn_p"}, took("snap_a", 2, "", 1),
		begins("turn_b", "sevt_b"), says("sevt_b", "two"),
	)
	const graph = `o sevt_b  1h ago  two
* snap_a  1h ago  turn, 1 B (newest)
< snap_a  1h ago  branched from it, of sesn_p
o sevt_a  1h ago  one
`
	if got := drawn(t, l, true); got != graph {
		t.Errorf("drawn\n%s\nwant\n%s", got, graph)
	}
	if last, ok := l.last(); !ok || last.Prompt != "sevt_b" {
		t.Errorf("the last is %+v", last)
	}
	if last, ok := historyOf(t, says("sevt_a", "one")).last(); ok { // another session has taken it up
		t.Errorf("the last is %+v", last)
	}
}
