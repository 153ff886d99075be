// Package oracle compares what a server says with what really happened. A run is good
// when seven counts are zero: prompts lost, effects doubled, effects too late, sessions
// stuck, logs that diverge from the world or from what clients are shown, gaps in what a
// follower saw, and work lost that was done in a sandbox.
package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/model/scripted"
)

// The seven zeroes.
const (
	Lost     = "lost"
	Double   = "double"
	Late     = "late"
	Stuck    = "stuck"
	Diverged = "diverged"
	Gaps     = "gaps"
	LostWork = "lostwork"
)

// Zeroes lists them in the order in which they are printed.
func Zeroes() []string { return []string{Lost, Double, Late, Stuck, Diverged, Gaps, LostWork} }

// Findings is what is wrong, by zero.
type Findings map[string][]string

// Add notes something wrong.
func (f Findings) Add(zero, format string, args ...any) {
	f[zero] = append(f[zero], fmt.Sprintf(format, args...))
}

// Merge takes over what other found. What is looked at twice is wrong once.
func (f Findings) Merge(other Findings) {
	for zero, found := range other {
		for _, text := range found {
			if !slices.Contains(f[zero], text) {
				f[zero] = append(f[zero], text)
			}
		}
	}
}

// OK reports whether nothing is wrong.
func (f Findings) OK() bool {
	for _, found := range f {
		if len(found) > 0 {
			return false
		}
	}
	return true
}

// Counts formats the zeroes as the last line of a run has them.
func Counts(counts map[string]int) string {
	words := make([]string, 0, len(Zeroes()))
	for _, zero := range Zeroes() {
		words = append(words, fmt.Sprintf("%s=%d", zero, counts[zero]))
	}
	return strings.Join(words, " ")
}

func (f Findings) String() string {
	var b strings.Builder
	for _, zero := range Zeroes() {
		for _, found := range f[zero] {
			fmt.Fprintf(&b, "%s: %s\n", zero, found)
		}
	}
	return b.String()
}

// Evidence is everything known of one session: what its log says, what the
// server shows, what its client was promised and what the world saw.
type Evidence struct {
	Log    []dormouse.Event
	Shown  rig.Shown
	Rows   rig.Rows
	Acks   []*rig.Ack
	Answer []Answer
	Asked  []rig.Asked
	Looks  []Look
	// Said is the description of the session that the server acknowledged, if any.
	Said *Said

	// Slack is how far the server's clock may be off the world's. Untimed says
	// that it was another altogether: what happened when cannot be compared.
	Slack   time.Duration
	Untimed bool
	// Lives is when each process of the server was started, if only one is served by at a
	// time, and Looked when the log was read.
	Lives  []time.Time
	Looked time.Time

	// The world. Inside says that it was seen from the workspace.
	Inside  bool
	Effects []rig.Effect
	Writes  map[string]rig.Written
	Calls   scripted.Calls

	// The follower.
	Followed []dormouse.Event
	All      bool
	Texts    map[dormouse.OpID][]string
	// Relayed says that what it saw may have come by way of another server, where
	// fragments get lost.
	Relayed bool
	Errs    []string
	// Damaged says that the test damaged stored payloads. Only then may one be shown as
	// lost.
	Damaged bool
}

// Answer is what people said to a tool call and the server accepted.
type Answer struct {
	Use     dormouse.EventID
	Content string // of a custom tool's result, or to a question
	Deny    bool
}

// Said is a description that the server accepted.
type Said struct {
	Title    string
	Tags     []string
	Metadata map[string]string
}

// before reports whether one thing surely happened before another.
func (e Evidence) before(a, b time.Time) bool { return !e.Untimed && a.Add(e.Slack).Before(b) }

// Judge finds what is wrong with one session.
func Judge(e Evidence) Findings {
	f := make(Findings)
	read(e.Log).judge(e, f)
	return f
}

func (l *journal) judge(e Evidence, f Findings) {
	l.judgePrompts(e, f)
	l.judgeCommands(e, f)
	l.judgeWrites(e, f)
	l.judgeModel(e, f)
	l.judgeAnswers(e, f)
	l.judgeQuestions(f)
	l.judgeWakeups(e, f)
	l.judgeAsked(e, f)
	l.judgeWork(e, f)
	l.judgeUnknown(e, f)
	l.judgeUsage(e, f)
	l.boxes.judge(f)
	if l.ended > 1 {
		f.Add(Double, "the session was terminated %d times", l.ended)
	}
	judgeRecoveries(e, f)
	judgeShown(e, f)
	judgeFollower(e, f)
}

// judgeRecoveries: each recovery of files is reported once.
func judgeRecoveries(e Evidence, f Findings) {
	recoveries := make(map[string]int)
	for _, x := range e.Log {
		if x.Type == dormouse.WorkspaceRecovered {
			id := rig.Decode[dormouse.WorkspaceRecovery](x).ID
			if recoveries[id]++; recoveries[id] > 1 {
				f.Add(Double, "recovery %s was told %d times", id, recoveries[id])
			}
		}
	}
}
