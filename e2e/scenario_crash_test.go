package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // to age a database that no server has open

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

func TestScenario14KilledMidTurnIsNotStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("it went on")))
	a.begun(1)
	w.kill(nil)
	a.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	if shown := a.rests(); shown.Phase != dormouse.PhaseReady {
		t.Errorf("session is %s, want ready", shown.Phase)
	}
	a.send("two", a.script(rig.Say("and takes prompts")))
	a.rests()
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the command began %d times, want once", n)
	}
}

func TestScenario14KilledMidReplyKeepsWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const text = "a slow and stately sentence, of which somebody has already seen the beginning"
	var log []dormouse.Event
	// A kill that comes after the last word is too late; the next reply is slower.
	for delay := 50; len(only(log, dormouse.SpanModelRequestStart)) < 2; delay *= 2 {
		if delay > 1000 {
			t.Fatalf("no kill came in the middle of a reply, or it left no trace:\n%s", types(log))
		}
		a := w.create(cold)
		a.send("one", a.script(rig.Step{"text": text, "chunks": 20, "chunk_delay_ms": delay}))
		w.until("somebody has seen a fragment", func() bool { return len(a.Follower.Texts()) > 0 })
		w.kill(nil)
		a.rests()
		log = a.log()
	}
	said := only(log, dormouse.AgentMessage)
	if len(said) != 2 || words(said[0]) == "" || !strings.HasPrefix(text, words(said[0])) || words(said[1]) != text {
		t.Errorf("said were %s, want the seen beginning once and then all of it", types(said))
	}
	if n := len(only(log, dormouse.SpanModelRequestEnd)); n != 2 {
		t.Errorf("%d model calls are shown with their cost, want both", n)
	}
}

func TestScenario15KilledWhileIdleStaysIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.send("one", a.script(rig.Bash(a.marked("true")), rig.Say("one")))
	a.rests()
	before, shown := a.log(), a.show()
	w.kill(nil)
	if after := a.show(); after.Phase != shown.Phase || after.Status != shown.Status {
		t.Errorf("session is %s, %s; want %s, %s", after.Phase, after.Status, shown.Phase, shown.Status)
	}
	w.kill(nil)
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Errorf("a kill while idle left events: %s", diff)
	}
}

func TestScenario17UnresolvedToolCallGetsOneResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		with   bool // the sandbox is killed as well
		status dormouse.EventType
	}{
		{"sandbox lives", false, dormouse.OpFinished},
		{"sandbox died", true, dormouse.OpUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.create(nil)
			wait, open := w.gate()
			a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("on with it")))
			a.begun(1)
			w.kill(func() {
				if c.with {
					w.KillSandboxes()
				}
				open()
			})
			a.rests()
			log := a.log()
			use, results := only(log, dormouse.AgentToolUse), only(log, dormouse.AgentToolResult)
			if len(use) != 1 || len(results) != 1 || rig.Decode[dormouse.ToolResult](results[0]).Use != use[0].ID {
				t.Fatalf("tool calls and results do not pair:\n%s", types(log))
			}
			if place(log, c.status) < 0 {
				t.Errorf("the log has no %s:\n%s", c.status, types(log))
			}
			if refusals := w.models.Account(a.tag).Calls().Refused; len(refusals) > 0 {
				t.Errorf("the next model call was invalid: %v", refusals)
			}
			if said := only(log, dormouse.AgentMessage); len(said) != 1 || words(said[0]) != "on with it" {
				t.Errorf("the agent said %s", types(said))
			}
		})
	}
}

func TestScenario18UnresolvedCustomToolIsNotAnsweredForAnyone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(options{"warm": false, "custom_tools": []options{{"name": "weather", "description": "asks the client"}}})
	a.send("one", a.script(rig.Use("weather", map[string]any{"city": "Ulm"}), rig.Say("so it is")))
	shown := a.phase(dormouse.PhaseWaiting)
	before := a.log()
	w.kill(nil)
	if again := a.show(); again.Phase != dormouse.PhaseWaiting || !slices.Equal(again.Waiting(), shown.Waiting()) || len(shown.Waiting()) != 1 {
		t.Fatalf("waiting for %v, then for %v", shown.Waiting(), again.Waiting())
	}
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Errorf("a kill while waiting left events: %s", diff)
	}
	answer := oracle.Answer{Use: shown.Waiting()[0], Content: "rain"}
	must(t, a.Command(w.ctx, "answers", options{"custom_tool_use_id": answer.Use, "content": answer.Content}))
	a.answers = append(a.answers, answer)
	refused(t, a.Command(w.ctx, "answers", options{"custom_tool_use_id": answer.Use, "content": "sun"}), http.StatusConflict, "conflict")
	a.rests()
	if got := only(a.log(), dormouse.UserCustomToolResult); len(got) != 1 || words(got[0]) != "rain" {
		t.Errorf("the results are %s, want the one answer", types(got))
	}
}

func TestScenario20RecoveryTwiceIsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// One orphan that waits for a person, one that is over when the second
	// recovery comes.
	asks, auto := w.create(options{"recovery": "ask"}), w.create(nil)
	wait, open := w.gate()
	for _, a := range []*actor{asks, auto} {
		a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("it went on")))
	}
	auto.begun(2)
	w.kill(nil)
	asks.phase(dormouse.PhaseInterrupted)
	auto.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	auto.rests()
	before := [][]dormouse.Event{asks.log(), auto.log()}
	for range 2 {
		w.kill(nil)
		for _, a := range []*actor{asks, auto} { // asked for nothing, both are looked at
			must(t, a.Command(w.ctx, "wake", nil))
		}
	}
	if diff := cmp.Diff(before, [][]dormouse.Event{asks.log(), auto.log()}); diff != "" {
		t.Errorf("the second recovery did something: %s", diff)
	}
	must(t, asks.Command(w.ctx, "retry", nil))
	asks.rests()
}

func TestScenario21OrphanADayOldIsRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *rig.Server) { s.Store = rig.Store{} }) // its file is what can be aged
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("a day later")))
	a.begun(1)
	w.kill(func() { w.age(24 * time.Hour) })
	a.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	if shown := a.rests(); shown.Phase != dormouse.PhaseReady {
		t.Errorf("session is %s, want ready", shown.Phase)
	}
	log := a.log()
	if d := log[len(log)-1].Time.Sub(log[0].Time); d < 24*time.Hour {
		t.Errorf("the log spans %s: it was not aged", d)
	}
	if said := only(log, dormouse.AgentMessage); len(said) != 1 || words(said[0]) != "a day later" {
		t.Errorf("the agent said %s", types(said))
	}
}

// age makes everything the stopped server knows older by d, as if it had been
// off for that long.
func (w *world) age(d time.Duration) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.Data, "dormouse.db"))
	must(w.t, err)
	_, err = db.ExecContext(w.ctx, "UPDATE events SET time = time - ?, sum = NULL", d.Microseconds())
	must(w.t, err)
	_, err = db.ExecContext(w.ctx, "DELETE FROM states")
	must(w.t, err)
	must(w.t, db.Close())
	w.cli("store", "rebuild") // everything else follows from the log
}

func TestScenario23SixKillsEndTheTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	never, _ := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(never)), rig.Say("never said")))
	a.begun(1)
	for n := range 6 {
		a.sees(dormouse.AttemptStarted, n+1) // each life tries
		w.kill(nil)
	}
	if shown := a.rests(); shown.Phase != dormouse.PhaseError || shown.Status != dormouse.StatusIdle {
		t.Errorf("session is %s, %s; want error, idle", shown.Phase, shown.Status)
	}
	log := a.log()
	if n := len(only(log, dormouse.SessionStatusRescheduled)); n != 5 {
		t.Errorf("%d reschedules, want 5", n)
	}
	errs := only(log, dormouse.SessionError)
	if len(errs) != 1 || rig.Decode[dormouse.Failure](errs[0]).Error.RetryStatus.Type != "exhausted" {
		t.Errorf("errors are %s, want one that says there will be no more tries", types(errs))
	}
	if n := a.effects("end"); n != 0 {
		t.Error("the command of the failed turn went on to its end")
	}
	a.send("two", a.script(rig.Bash(a.marked("true")), rig.Say("the next one")))
	if shown := a.rests(); shown.Phase != dormouse.PhaseReady {
		t.Errorf("after the next prompt the session is %s, want ready", shown.Phase)
	}
}

func TestScenario24KilledBetweenEnqueueAndDispatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("one")))
	a.begun(1)
	second := a.send("two", a.script(rig.Bash(a.marked("true")), rig.Say("two")))
	w.kill(nil)
	if got := a.queue(); len(got) != 2 || got[1] != "queued "+string(second) {
		t.Errorf("the queue after the kill is %v", got)
	}
	a.send("two", a.Acks()[1].Content) // a client that is not sure sends again
	open()
	a.rests()
	if n := a.effects("begin"); n != 2 {
		t.Errorf("%d commands began, want one for each prompt", n)
	}
}

func TestScenario25LostSideEffectIsShownAndNotRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, _ := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("I shall look before I try again")))
	a.begun(1)
	w.kill(w.KillSandboxes)
	a.rests()
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the command began %d times, want once", n)
	}
	log := a.log()
	unknown := only(log, dormouse.OpUnknown)
	if len(unknown) != 1 || unknown[0].Type.Audience() > dormouse.ForPeople {
		t.Errorf("unknown are %s, want the one, shown to people", types(unknown))
	}
	result := only(log, dormouse.AgentToolResult)
	if len(result) != 1 || !strings.Contains(words(result[0]), "may have executed") || !rig.Decode[dormouse.ToolResult](result[0]).IsError {
		t.Errorf("the agent was told %s, want the doubt", types(result))
	}
	if out := w.cli("session", "ops", string(a.ID)); !strings.Contains(out, "unknown") {
		t.Errorf("the list of ops does not show the doubt:\n%s", out)
	}
}

func TestScenario54PolicyAskWaitsForAPerson(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{"retry", "continue"} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.create(options{"recovery": "ask"})
			wait, open := w.gate()
			a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("it went on")))
			a.begun(1)
			a.send("two", a.script(rig.Say("the next one")))
			w.kill(nil)
			a.phase(dormouse.PhaseInterrupted)
			w.kill(nil) // neither a reconnecting client nor a server changes it
			a.phase(dormouse.PhaseInterrupted)
			must(t, a.Command(w.ctx, decision, nil))
			open()
			if shown := a.rests(); shown.Phase != dormouse.PhaseReady {
				t.Errorf("session is %s, want ready", shown.Phase)
			}
			var said []string
			for _, e := range only(a.log(), dormouse.AgentMessage) {
				said = append(said, words(e))
			}
			want := []string{"it went on", "the next one"}
			if decision == "continue" {
				want = want[1:]
			}
			if diff := cmp.Diff(want, said); diff != "" {
				t.Error(diff)
			}
			refused(t, a.Command(w.ctx, decision, nil), http.StatusConflict, "conflict")
		})
	}
}

func TestScenario60CursorBringsWhatWasMissedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	for i := range 3 {
		a.send(fmt.Sprint(i), a.script(rig.Say("a word")))
		a.rests()
		w.kill(nil)
	}
	log := a.log()
	for after := range log { // from every cursor, in pages of every size
		var page struct {
			Events []dormouse.Event `json:"events"`
			More   bool             `json:"more"`
		}
		limit := after%7 + 1
		must(t, a.Get(w.ctx, a.Path(fmt.Sprintf("/events?all=true&after=%d&limit=%d", after, limit)), &page))
		if diff := cmp.Diff(log[after:min(after+limit, len(log))], page.Events); diff != "" {
			t.Fatalf("after %d: %s", after, diff)
		}
		if page.More != (after+limit < len(log)) {
			t.Errorf("after %d of %d in pages of %d, more is %v", after, len(log), limit, page.More)
		}
	}
	// The streams that broke are judged with the session; those that come late
	// see the same.
	late := &rig.Session{Client: w.Client, ID: a.ID}
	f := late.Follow(w.ctx, true)
	defer f.Close()
	must(t, f.Reaches(w.ctx, log[len(log)-1].Seq))
	if diff := cmp.Diff(log, f.Seen()); diff != "" {
		t.Error(diff)
	}
	_, err := a.Once(w.ctx, http.MethodGet, a.Path(fmt.Sprintf("/events?after=%d", len(log)+1)), nil, nil)
	refused(t, err, http.StatusBadRequest, "invalid")
}
