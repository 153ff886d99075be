package session_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/session.md")

// situation is a named place in a session's life.
type situation struct {
	name  string
	phase dormouse.Phase
	make  func(t testing.TB) *world
}

// run asks for a command.
func run(id dormouse.EventID) session.Run {
	return session.Run{ExecAsk: dormouse.ExecAsk{Exec: id, Command: "true"}}
}

// kept is a session whose line has a point, askedPoint("0").
func kept(t testing.TB) *world {
	w := newWorld(t, dormouse.Created{Warm: true})
	w.must(session.SandboxUp{Generation: 1, Handle: json.RawMessage(`{}`), Snapshots: dormouse.SnapshotsByTurn, Seals: true})
	w.must(session.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: askedPoint("0")}})
	w.must(w.point())
	return w
}

func askedPoint(name string) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, name))
}

// redirect interrupts what goes on and asks for something else, in one request.
func redirect(w *world, request dormouse.EventID) session.Send {
	p := w.prompt(fmt.Sprint("redirect", w.state.Seq))
	p.System = &dormouse.SystemBody{ID: dormouse.EventID(fmt.Sprint("sevt_s", w.state.Seq)), Content: []dormouse.Block{dormouse.Text("be brief")}}
	return session.Send{Request: request, Body: "sha256:body", Steps: []session.Step{
		{Interrupt: &session.Interrupt{Thread: w.at, ID: dormouse.EventID(fmt.Sprint("sevt_r", w.state.Seq)), Always: true}}, {Prompt: &p},
	}}
}

func retool(name string) session.Describe {
	return session.Describe{Agent: &dormouse.AgentConfig{
		Name: name, Model: "m", Tools: []dormouse.ToolConfig{{Name: "bash"}}, Shown: json.RawMessage(`{"name":"` + name + `"}`),
	}}
}

func layers(names ...string) (list []dormouse.Layer) {
	for _, n := range names {
		list = append(list, dormouse.Layer{Digest: dormouse.DigestOf([]byte(n)), DiffID: dormouse.DigestOf([]byte(n)), Size: 1})
	}
	return list
}

// point is the point that is wanted, or one that is not.
func (w *world) point() session.TakeSnapshot {
	p := dormouse.Snapshot{
		ID: askedPoint("x"), Reason: dormouse.SnapshotAsked, At: w.state.Seq, Generation: w.state.Sandbox.Generation,
		Workspace: w.state.Workspace.Number, Layers: append(slices.Clip(w.state.Workspace.Line), layers(fmt.Sprint(w.state.Seq))...),
	}
	if want := session.Want(w.state).Capture; want != nil {
		p.ID, p.Reason = want.ID, want.Reason
	}
	return session.TakeSnapshot{Snapshot: p}
}

func imports(name string) session.ImportSnapshot {
	return session.ImportSnapshot{Ask: dormouse.SnapshotAsk{ID: askedPoint(name)}, Layers: layers(name)}
}

func (w *world) swap(to uint64) session.Swap {
	return session.Swap{To: to, WorkspaceSwap: dormouse.WorkspaceSwap{
		Number: w.state.Workspace.Number + 1, Snapshot: askedPoint("0"), Layers: layers("0"), Reason: dormouse.SwapRestored,
	}}
}

func situations() []situation {
	none := dormouse.Created{}
	return []situation{
		{"creating", dormouse.PhaseCreating, func(t testing.TB) *world { return newWorld(t, dormouse.Created{Warm: true}) }},
		{"ready", dormouse.PhaseReady, func(t testing.TB) *world { return warm(t, none) }},
		{"idle", dormouse.PhaseReady, func(t testing.TB) *world { return warm(t, dormouse.Created{SleepAfter: time.Second}) }},
		{"asked to run", dormouse.PhaseCreating, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(run("sevt_x"))
			return w
		}},
		{"running a command", dormouse.PhaseReady, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(run("sevt_x"))
			return w
		}},
		{"queued", dormouse.PhaseReady, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(w.prompt("p1"))
			return w
		}},
		{"a snapshot asked for", dormouse.PhaseReady, func(t testing.TB) *world {
			w := kept(t)
			w.must(session.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: askedPoint("1")}})
			return w
		}},
		{"sealing", dormouse.PhaseHibernated, func(t testing.TB) *world {
			w := kept(t)
			w.must(session.Hibernate{})
			w.must(session.SandboxDown{Generation: 1})
			return w
		}},
		{"running", dormouse.PhaseRunning, func(t testing.TB) *world { return running(t, none) }},
		{"calling", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.must(session.StartOp{Work: w.work(), Op: w.modelOp()})
			return w
		}},
		{"acting", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateNone)
			w.must(session.StartOp{Work: w.work(), Op: w.execOp(dormouse.OpExec)})
			return w
		}},
		{"asked", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateAsk)
			return w
		}},
		{"said", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.ask()
			return w
		}},
		{"between", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.must(session.FailAttempt{Work: w.work(), Error: "model_overloaded_error", Message: "busy", Retry: true, Until: w.now.Add(time.Second)})
			return w
		}},
		{"waiting", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateAsk)
			w.must(session.Block{Work: w.work()})
			return w
		}},
		{"asking", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateQuestion)
			w.must(session.Block{Work: w.work()})
			return w
		}},
		{"unanswered", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateQuestion)
			w.must(session.Block{Work: w.work()})
			w.now = w.now.Add(dormouse.QuestionWithin)
			return w
		}},
		{"using", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateNone)
			return w
		}},
		{"due", dormouse.PhaseReady, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(w.schedule("w"))
			w.now = w.now.Add(time.Hour)
			return w
		}},
		{"parent", dormouse.PhaseReady, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(spawn("c"))
			return w
		}},
		{"interrupted", dormouse.PhaseInterrupted, func(t testing.TB) *world {
			w := running(t, dormouse.Created{Recovery: dormouse.RecoverAsk})
			w.epoch++
			w.must(session.Recover{})
			return w
		}},
		{"error", dormouse.PhaseError, func(t testing.TB) *world {
			w := running(t, none)
			w.must(session.FailAttempt{Work: w.work(), Error: "model_request_failed_error", Message: "no such model"})
			return w
		}},
		{"hibernating", dormouse.PhaseHibernating, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(session.Hibernate{})
			return w
		}},
		{"hibernated", dormouse.PhaseHibernated, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(session.Hibernate{}, session.SandboxDown{Generation: 1})
			return w
		}},
		{"waking", dormouse.PhaseWaking, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(session.Hibernate{}, session.SandboxDown{Generation: 1}, session.Wake{})
			return w
		}},
		{"terminated", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(session.Terminate{Reason: "done"}, session.SandboxDown{Generation: 1})
			return w
		}},
		{"bereft", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(spawn("c"), session.ChildUp{Child: dormouse.ChildID(sid, "c")}, session.Terminate{Reason: "done"})
			return w
		}},
		{"ended beside its parent", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, dormouse.Created{Parent: "sesn_parent", Depth: 1})
			w.must(session.Terminate{Reason: "done"})
			return w
		}},
		{"archived", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(session.Archive{})
			return w
		}},
		{"deleted", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(session.Delete{})
			return w
		}},
	}
}

// verbs lists every verb, each aimed at what the situation offers.
func verbs() []struct {
	name string
	aim  func(w *world) session.Verb
} {
	type row = struct {
		name string
		aim  func(w *world) session.Verb
	}
	open := func(w *world) dormouse.Op {
		if len(w.state.Ops) > 0 {
			return w.state.Ops[0].Op
		}
		return dormouse.Op{ID: "op_none"}
	}
	return []row{
		{"Create", func(*world) session.Verb { return session.Create{Created: dormouse.Created{Session: sid}} }},
		{"Prompt", func(w *world) session.Verb { return w.prompt("p2") }},
		{"Send", func(w *world) session.Verb { return redirect(w, "") }},
		{"Cancel", func(*world) session.Verb { return session.Cancel{Prompt: dormouse.PromptID(sid, "p1")} }},
		{"Interrupt", func(*world) session.Verb { return session.Interrupt{ID: "sevt_i"} }},
		{"Answer", func(w *world) session.Verb { return answer(w.use(), true) }},
		{"OpenThread", func(*world) session.Verb { return session.OpenThread{Thread: "sthr_second"} }},
		{"ArchiveThread", func(*world) session.Verb { return session.ArchiveThread{Thread: "sthr_other"} }},
		{"Schedule", func(w *world) session.Verb { return w.schedule("w2") }},
		{"Unschedule", func(*world) session.Verb { return session.Unschedule{ID: "wake_w"} }},
		{"Spawn", func(*world) session.Verb { return spawn("c2") }},
		{"EndChild", func(*world) session.Verb { return session.EndChild{Child: dormouse.ChildID(sid, "c")} }},
		{"Describe", func(*world) session.Verb { return session.Describe{Title: new("other"), Tags: &[]string{"b", "a"}} }},
		{"Describe its agent", func(*world) session.Verb { return retool("other") }},
		{"Archive", func(*world) session.Verb { return session.Archive{} }},
		{"Delete", func(*world) session.Verb { return session.Delete{} }},
		{"Retry", func(*world) session.Verb { return session.Retry{} }},
		{"Continue", func(*world) session.Verb { return session.Continue{} }},
		{"Hibernate", func(*world) session.Verb { return session.Hibernate{} }},
		{"Wake", func(*world) session.Verb { return session.Wake{} }},
		{"Terminate", func(*world) session.Verb { return session.Terminate{Reason: "asked"} }},
		{"Run", func(*world) session.Verb { return run("sevt_x2") }},
		{"EndExec", func(*world) session.Verb { return session.EndExec{Exec: "sevt_x"} }},
		{"StartExec", func(*world) session.Verb { return session.StartExec{Exec: "sevt_x", Args: "sha256:x"} }},
		{"Take", func(w *world) session.Verb { return w.take("p1") }},
		{"Recover", func(w *world) session.Verb { w.epoch++; return session.Recover{} }},
		{"StartAttempt", func(w *world) session.Verb { return session.StartAttempt{Turn: w.work().Turn} }},
		{"ReturnAttempt", func(w *world) session.Verb { return session.ReturnAttempt{Turn: w.work().Turn} }},
		{"FailAttempt", func(w *world) session.Verb {
			return session.FailAttempt{Work: w.work(), Error: "model_overloaded_error", Message: "busy", Retry: true}
		}},
		{"StartOp", func(w *world) session.Verb { return session.StartOp{Work: w.work(), Op: w.modelOp()} }},
		{"FinishOp", func(w *world) session.Verb {
			op := open(w)
			if op.Kind == dormouse.OpModel {
				return w.reply(op)
			}
			return w.toolResult(op)
		}},
		{"Settle", func(w *world) session.Verb {
			return session.Settle{Work: w.work(), Use: w.use().ID, Do: w.schedule("w3"), Text: "done"}
		}},
		{"LoseOp", func(w *world) session.Verb { return session.LoseOp{Op: open(w).ID, Why: "nobody knows"} }},
		{"Block", func(w *world) session.Verb { return session.Block{Work: w.work()} }},
		{"EndTurn", func(w *world) session.Verb { return session.EndTurn{Work: w.work()} }},
		{"Warm", func(*world) session.Verb { return session.Warm{} }},
		{"SandboxUp", func(w *world) session.Verb {
			return session.SandboxUp{Generation: w.state.Sandbox.Generation, Handle: json.RawMessage(`{}`)}
		}},
		{"SandboxGone", func(w *world) session.Verb {
			return session.SandboxGone{Generation: w.state.Sandbox.Generation, Reason: "it died"}
		}},
		{"SandboxDelayed", func(w *world) session.Verb {
			return session.SandboxDelayed{Generation: w.state.Sandbox.Generation, Reason: "no space left"}
		}},
		{"SandboxRelieved", func(w *world) session.Verb {
			return session.SandboxRelieved{Generation: w.state.Sandbox.Generation, Reason: "out of memory"}
		}},
		{"SandboxDown", func(w *world) session.Verb { return session.SandboxDown{Generation: w.state.Sandbox.Generation} }},
		{"RecordRecovery", func(w *world) session.Verb {
			return session.RecordRecovery{WorkspaceRecovery: dormouse.WorkspaceRecovery{ID: "cut", Workspace: w.state.Workspace.Number, Condition: "cut", Reason: "the machine ended"}}
		}},
		{"RecordRecovery again", func(w *world) session.Verb {
			r := session.RecordRecovery{WorkspaceRecovery: dormouse.WorkspaceRecovery{ID: "cut", Condition: "cut"}}
			w.must(r)
			return r
		}},
		{"AskSnapshot", func(*world) session.Verb {
			return session.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: askedPoint("2")}}
		}},
		{"TakeSnapshot", func(w *world) session.Verb { return w.point() }},
		{"SkipSnapshot", func(w *world) session.Verb {
			p := w.point()
			return session.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{ID: p.ID, Reason: p.Reason, Error: "no room"}}
		}},
		{"ImportSnapshot", func(*world) session.Verb { return imports("7") }},
		{"ForgetSnapshots", func(*world) session.Verb {
			return session.ForgetSnapshots{IDs: []dormouse.SnapshotID{askedPoint("0"), askedPoint("nowhere")}}
		}},
		{"Swap", func(w *world) session.Verb { return w.swap(0) }},
		{"Swap and truncate", func(w *world) session.Verb { return w.swap(2) }},
		{"Touch", func(w *world) session.Verb {
			return session.Touch{WorkspaceTouch: dormouse.WorkspaceTouch{Generation: w.state.Sandbox.Generation, By: "terminal"}}
		}},
		{"Fire", func(w *world) session.Verb {
			return session.Fire{ID: "wake_w", Content: []dormouse.Block{dormouse.Text("again")}}
		}},
		{"ChildUp", func(*world) session.Verb { return session.ChildUp{Child: dormouse.ChildID(sid, "c")} }},
		{"ChildDown", func(*world) session.Verb {
			return session.ChildDown{Child: dormouse.ChildID(sid, "c"), Reason: "terminated"}
		}},
		{"ParentTold", func(*world) session.Verb { return session.ParentTold{} }},
		{"MakeRoom", func(*world) session.Verb { return session.MakeRoom{} }},
		{"Tick", func(*world) session.Verb { return session.Tick{} }},
	}
}

// TestEveryVerbHasARow: what the machine takes and the table does not show goes
// untested in every situation.
func TestEveryVerbHasARow(t *testing.T) {
	source, err := os.ReadFile("command.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for _, v := range verbs() {
		for _, s := range situations() {
			rows[fmt.Sprintf("%T", v.aim(s.make(t)))] = true
		}
	}
	all := regexp.MustCompile(`(?m)^func \((\w+)\) +verb\(\)`).FindAllSubmatch(source, -1)
	if len(all) == 0 {
		t.Fatal("command.go declares no verbs")
	}
	for _, m := range all {
		if name := "session." + string(m[1]); !rows[name] {
			t.Errorf("%s has no row in the state table", name)
		}
	}
}

// TestEveryCellOfTheStateTableHolds walks every situation against every verb and
// compares what happens with docs/session.md, in both directions.
func TestEveryCellOfTheStateTableHolds(t *testing.T) {
	got := renderMatrix(t)
	const path = "../docs/session.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- matrix: begin -->\n", "<!-- matrix: end -->"
	head, rest, ok := strings.Cut(string(doc), begin)
	want, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no matrix between its markers", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+begin+got+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/session.md and the machine disagree (-doc +code); if the code is right, go test ./session -run StateTable -update:\n%s", diff)
	}
}

func renderMatrix(t *testing.T) string {
	var b, detail strings.Builder
	b.WriteString("| |")
	for _, s := range situations() {
		b.WriteString(" " + s.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(situations())) + "\n")
	for _, v := range verbs() {
		b.WriteString("| " + v.name + " |")
		fmt.Fprintf(&detail, "\n**%s**\n", v.name)
		lists := make(map[string][]string)
		var order []string
		for _, s := range situations() {
			w := s.make(t)
			if got := session.PhaseOf(w.state); got != s.phase {
				t.Fatalf("situation %s shows %s, want %s", s.name, got, s.phase)
			}
			events, err := w.try(v.aim(w))
			b.WriteString(" " + cell(events, err) + " |")
			if err != nil || len(events) == 0 {
				continue
			}
			var types []string
			for _, e := range events {
				types = append(types, string(e.Type))
			}
			line := strings.Join(types, ", ") + " → " + string(session.PhaseOf(w.state))
			if lists[line] == nil {
				order = append(order, line)
			}
			lists[line] = append(lists[line], s.name)
		}
		b.WriteString("\n")
		for _, line := range order {
			fmt.Fprintf(&detail, "- %s: %s\n", strings.Join(lists[line], ", "), line)
		}
		if len(order) == 0 {
			detail.WriteString("- nowhere here\n")
		}
	}
	return b.String() + detail.String()
}

func cell(events []dormouse.Event, err error) string {
	switch {
	case errors.Is(err, dormouse.ErrTerminated):
		return "over"
	case errors.Is(err, dormouse.ErrConflict):
		return "no"
	case errors.Is(err, dormouse.ErrNotFound):
		return "none"
	case errors.Is(err, dormouse.ErrInvalid):
		return "bad"
	case err != nil:
		return err.Error()
	case len(events) == 0:
		return "–"
	}
	return "**yes**"
}

// TestEveryPhaseIsReached keeps the table from losing a phase.
func TestEveryPhaseIsReached(t *testing.T) {
	var seen []dormouse.Phase
	for _, s := range situations() {
		seen = append(seen, s.phase)
	}
	for _, p := range dormouse.Phases() {
		if !slices.Contains(seen, p) {
			t.Errorf("no situation shows %s", p)
		}
	}
}

// TestADecisionReplaysToTheSameState is the rule that the log is the only truth.
func TestADecisionReplaysToTheSameState(t *testing.T) {
	for _, s := range situations() {
		for _, v := range verbs() {
			w := s.make(t)
			_, _ = w.try(v.aim(w))
			var replayed session.State
			for _, e := range w.log {
				replayed = session.Apply(replayed, e)
			}
			if diff := cmp.Diff(w.state, replayed); diff != "" {
				t.Errorf("%s in %s: replay differs: %s", v.name, s.name, diff)
			}
		}
	}
}
