package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// step is one entry of a session's history.
type step struct {
	Kind string `json:"kind"`
	// At is the seq that it is sorted by.
	At   uint64    `json:"at"`
	Time time.Time `json:"time"`
	// Prompt, Text and Outcome are of a turn; the outcome only if it did not complete.
	Prompt  dormouse.EventID `json:"prompt,omitempty"`
	Text    string           `json:"text,omitempty"`
	Outcome string           `json:"outcome,omitempty"`
	// Snapshot is the one that was taken, gone back to or branched from, and Origin the
	// session that has it, if that is another.
	Snapshot dormouse.SnapshotID `json:"snapshot,omitempty"`
	Origin   dormouse.SessionID  `json:"origin,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Label    string              `json:"label,omitempty"`
	Bytes    int64               `json:"bytes,omitempty"`
	Midway   bool                `json:"midway,omitempty"`
	Aside    bool                `json:"aside,omitempty"`
	// Newest says that the session goes on from this snapshot, Deleted that it cannot
	// be gone back to any more.
	Newest  bool `json:"newest,omitempty"`
	Deleted bool `json:"deleted,omitempty"`
	// Reverted says that it is not part of the history any more, Replaced that it can be
	// restored all the same: it is the snapshot of what was replaced.
	Reverted bool `json:"reverted,omitempty"`
	Replaced bool `json:"kept,omitempty"`

	within []int // what it was reverted by, the outermost first
}

// The kinds of steps.
const (
	stepTurn     = "turn"
	stepCopied   = "copied" // a prompt of the session that this one is a branch of
	stepSnapshot = "snapshot"
	stepRestored = "restored"
	stepReverted = "reverted"
	stepBranched = "branched"
)

// history is the steps of a session, the oldest first.
type history struct {
	steps  []step
	voids  []void
	newest dormouse.SnapshotID
	places map[string]int // of turns, prompts and snapshots among the steps, until they are in order
}

// void is a part of the log that was reverted: what comes after from, up to and
// with upto.
type void struct{ from, upto uint64 }

// readHistory makes the history of a session from its log.
func readHistory(ctx context.Context, c *client.Client, session dormouse.SessionID) (*history, error) {
	l := &history{places: make(map[string]int)}
	for e, err := range c.Events(ctx, session, client.EventOptions{All: true}) {
		if err != nil {
			return nil, err
		}
		if err := l.add(e.Event); err != nil {
			return nil, fmt.Errorf("understand event %d: %w", e.Seq, err)
		}
	}
	l.finish()
	return l, nil
}

// factOf is the payload of an event.
func factOf[T any](e dormouse.Event) (f T, err error) { return f, json.Unmarshal(e.Payload, &f) }

// add takes note of an event.
func (l *history) add(e dormouse.Event) error {
	switch e.Type { //nolint:exhaustive // the others are not part of the history
	case dormouse.TurnStarted, dormouse.TurnEnded, dormouse.UserMessage:
		return l.addTurn(e)
	case dormouse.SnapshotTaken:
		f, err := factOf[dormouse.Snapshot](e)
		s := step{
			Kind: stepSnapshot, At: f.At, Time: e.Time, Snapshot: f.ID, Reason: f.Reason, Label: f.Label, Midway: f.Midway, Aside: f.Aside,
		}
		for _, layer := range f.Layers {
			s.Bytes += layer.Bytes
		}
		if !f.Aside {
			l.newest = f.ID
		}
		l.put(s, string(f.ID))
		return err
	case dormouse.SnapshotDeleted:
		f, err := factOf[dormouse.SnapshotsGone](e)
		for _, id := range f.IDs {
			if s := l.at(string(id)); s != nil {
				s.Deleted = true
			}
		}
		return err
	case dormouse.WorkspaceSwapped:
		f, err := factOf[dormouse.WorkspaceSwap](e)
		l.newest = f.Snapshot
		switch f.Reason {
		case dormouse.SwapRestored:
			l.put(step{Kind: stepRestored, At: e.Seq, Time: e.Time, Snapshot: f.Snapshot, Origin: f.Origin})
		case dormouse.SwapBranched:
			l.put(step{Kind: stepBranched, At: e.Seq, Time: e.Time, Snapshot: f.Snapshot, Origin: f.Origin})
		}
		return err
	case dormouse.HistoryTruncated:
		f, err := factOf[dormouse.Truncation](e)
		l.voids = append(l.voids, void{from: f.To, upto: e.Seq})
		if s := l.at(string(f.Replaced)); f.Replaced != "" && s != nil {
			s.Replaced = true
		}
		// The files were reverted too, which is all that is left of the reverted part.
		if n := len(l.steps); n > 0 && l.steps[n-1].Kind == stepRestored {
			l.steps[n-1].Kind, l.steps[n-1].At = stepReverted, e.Seq+1
		}
		return err
	}
	return nil
}

// put adds a step, which is found again by its names.
func (l *history) put(s step, names ...string) {
	for _, name := range names {
		l.places[name] = len(l.steps)
	}
	l.steps = append(l.steps, s)
}

// at is the last step that has a name, or nil.
func (l *history) at(name string) *step {
	if i, ok := l.places[name]; ok {
		return &l.steps[i]
	}
	return nil
}

func (l *history) addTurn(e dormouse.Event) error {
	if e.Type == dormouse.UserMessage {
		f, err := factOf[dormouse.Message](e)
		s := l.at(string(e.ID))
		if s == nil {
			l.put(step{Kind: stepCopied, At: e.Seq, Time: e.Time, Prompt: e.ID, Text: textOf(f.Content)})
			return err
		}
		s.Text = textOf(f.Content)
		return err
	}
	f, err := factOf[dormouse.TurnFact](e)
	if e.Type == dormouse.TurnEnded {
		if s := l.at(string(f.Turn)); s != nil && f.Outcome != dormouse.TurnCompleted {
			s.Outcome = f.Outcome
		}
		return err
	}
	s := step{Kind: stepTurn, At: e.Seq, Time: e.Time}
	if before := l.at(string(f.RetryOf)); before != nil {
		s.Text = before.Text
	}
	names := []string{string(f.Turn)}
	for _, p := range f.Prompts {
		s.Prompt = cmp.Or(s.Prompt, p)
		names = append(names, string(p))
	}
	l.put(s, names...)
	return err
}

// finish sorts the steps and marks those that are not part of the history
// any more.
func (l *history) finish() {
	slices.SortStableFunc(l.steps, func(a, b step) int { return cmp.Compare(a.At, b.At) })
	for i := range l.steps {
		s := &l.steps[i]
		s.Newest = s.Kind == stepSnapshot && s.Snapshot == l.newest && !s.Deleted
		for n, v := range slices.Backward(l.voids) { // a later one may hold an earlier one
			if v.from < s.At && s.At <= v.upto && !s.Aside {
				s.within = append(s.within, n)
			}
		}
		s.Reverted = len(s.within) > 0
	}
}

// last is the last turn that is part of the history, if there is one.
func (l *history) last() (step, bool) {
	for _, s := range slices.Backward(l.steps) {
		if s.Kind == stepTurn && !s.Reverted && s.Prompt != "" {
			return s, true
		}
	}
	return step{}, false
}

// of is the last turn of a prompt.
func (l *history) of(prompt dormouse.EventID) step {
	for _, s := range slices.Backward(l.steps) {
		if s.Kind == stepTurn && s.Prompt == prompt {
			return s
		}
	}
	return step{Prompt: prompt}
}
