package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
)

// judgeShown: the log is sound, and everything shown follows from it.
func judgeShown(e Evidence, f Findings) {
	if err := sessiontest.Check(e.Log); err != nil {
		f.Add(Diverged, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var zero law.State
	state, rows := law.Project(zero, e.Log)
	if phase, status := law.PhaseOf(state), law.StatusOf(state); e.Shown.Phase != phase || e.Shown.Status != status || e.Shown.Seq != state.Seq {
		f.Add(Diverged, "shown are %s, %s at %d; the log says %s, %s at %d",
			e.Shown.Phase, e.Shown.Status, e.Shown.Seq, phase, status, state.Seq)
	}
	if i := e.Rows.Index; i.Phase != rows.Session.Phase || i.Status != rows.Session.Status || i.Seq != rows.Session.Seq {
		f.Add(Diverged, "listed are %s, %s at %d; the log says %s, %s at %d",
			i.Phase, i.Status, i.Seq, rows.Session.Phase, rows.Session.Status, rows.Session.Seq)
	}
	if row, ok := e.row(); ok {
		want := rows.Session
		want.Search, want.Needs = "", 0 // which are not listed
		if diff := cmp.Diff(want, row, cmpopts.EquateEmpty()); diff != "" {
			f.Add(Diverged, "the row listed differs from the log: %s", diff)
		}
	}
	// A wake-up that has not fired this long after its time never will.
	const late = 10 * time.Second
	for _, w := range state.Wakeups {
		due := w.At
		if n := len(e.Lives); n > 0 && e.Lives[n-1].After(due) {
			due = e.Lives[n-1] // before that no server was there to fire it
		}
		if state.Terminated == nil && len(e.Lives) > 0 && e.before(due.Add(late), e.Looked) {
			f.Add(Stuck, "wake-up %s was due at %s and had not fired at %s", w.ID, w.At, e.Looked)
		}
	}
	if s := e.Said; s != nil {
		for _, shown := range []rig.Shown{e.Shown, e.Rows.Index} {
			if got := (Said{shown.Title, shown.Tags, shown.Metadata}); !cmp.Equal(got, *s, cmpopts.EquateEmpty()) {
				f.Add(Lost, "the session was described as %v and is shown as %v", *s, got)
			}
		}
	}
	ops := slices.Clone(rows.Ops)
	slices.Reverse(ops)
	if diff := cmp.Diff(ops, e.Rows.Ops, cmpopts.EquateEmpty()); diff != "" && len(ops) <= 1000 {
		f.Add(Diverged, "the ops listed differ from the log: %s", diff)
	}
	var queue []dormouse.PromptRecord
	for _, status := range []dormouse.PromptStatus{dormouse.PromptIsProcessing, dormouse.PromptIsQueued} {
		for _, q := range rows.Prompts {
			if q.Status == status {
				queue = append(queue, q)
			}
		}
	}
	if diff := cmp.Diff(queue, e.Rows.Prompts, cmpopts.EquateEmpty()); diff != "" {
		f.Add(Diverged, "the queue listed differs from the log: %s", diff)
	}
}

// row is all that is listed of the session, if it was looked at.
func (e Evidence) row() (row session.Row, ok bool) {
	if len(e.Rows.Row) == 0 {
		return row, false
	}
	decode(e.Rows.Row, &row)
	return row, true
}

// judgeFollower: a follower that reconnects with a cursor sees each event once, in
// order.
func judgeFollower(e Evidence, f Findings) {
	for _, err := range e.Errs {
		f.Add(Gaps, "%s", err)
	}
	var want []dormouse.Event
	for _, x := range e.Log {
		if e.All || x.Type.Audience() <= dormouse.ForPeople {
			want = append(want, x)
		}
	}
	for _, x := range append(slices.Clone(e.Followed), want...) {
		if !e.Damaged && strings.HasPrefix(string(x.Payload), `{"lost":`) {
			f.Add(Diverged, "event %d %s is shown as lost, and nobody damaged it", x.Seq, x.Type)
		}
	}
	for i := range max(len(want), len(e.Followed)) {
		switch {
		case i >= len(e.Followed):
			f.Add(Gaps, "the follower never saw event %d %s and %d more", want[i].Seq, want[i].Type, len(want)-i-1)
		case i >= len(want):
			f.Add(Gaps, "the follower saw event %d %s, which is not in the log", e.Followed[i].Seq, e.Followed[i].Type)
		case e.Followed[i].Seq != want[i].Seq || e.Followed[i].ID != want[i].ID || !sameSaid(e, e.Followed[i], want[i]):
			f.Add(Gaps, "the follower saw event %d %s where the log has %d %s: %s; %s", e.Followed[i].Seq, e.Followed[i].Type, want[i].Seq, want[i].Type, e.Followed[i].Payload, want[i].Payload)
		default:
			continue
		}
		return
	}
}

// sameSaid reports whether two readings of an event say the same. If payloads were
// damaged, one of them may say in its place which one is lost.
func sameSaid(e Evidence, a, b dormouse.Event) bool {
	return string(a.Payload) == string(b.Payload) || e.Damaged && (losesOnly(a, b) || losesOnly(b, a))
}

// losesOnly reports whether a says that the payload of b is lost, and nothing else.
func losesOnly(a, b dormouse.Event) bool {
	return string(a.Payload) == string(dormouse.Encode(dormouse.Lost{Blob: dormouse.DigestOf(b.Payload)}))
}
