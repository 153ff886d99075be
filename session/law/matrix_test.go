package law_test

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
	"github.com/dormouse-run/dormouse/session/law"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/session.md")

// situation is a named place in a session's life.
type situation struct {
	name  string
	phase dormouse.Phase
	make  func(t testing.TB) *world
}

// run asks for a command.
func run(id dormouse.EventID) law.Run {
	return law.Run{ExecAsk: dormouse.ExecAsk{Exec: id, Command: "true"}}
}

// kept is a session whose chain has a snapshot, snapshotID("0").
func kept(t testing.TB) *world {
	w := newWorld(t, dormouse.Created{Warm: true})
	w.must(law.SandboxUp{Generation: 1, Handle: json.RawMessage(`{}`), Snapshots: dormouse.SnapshotsByTurn, Seals: true})
	w.must(law.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: snapshotID("0")}})
	w.must(w.snapshot())
	return w
}

func snapshotID(name string) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, name))
}

// redirect interrupts what goes on and asks for something else, in one request.
func redirect(w *world, request dormouse.EventID) law.Send {
	p := w.prompt(fmt.Sprint("redirect", w.state.Seq))
	p.System = &dormouse.SystemBody{ID: dormouse.EventID(fmt.Sprint("sevt_s", w.state.Seq)), Content: []dormouse.Block{dormouse.Text("be brief")}}
	return law.Send{Request: request, Body: "sha256:body", Steps: []law.Step{
		{Interrupt: &law.Interrupt{Thread: w.at, ID: dormouse.EventID(fmt.Sprint("sevt_r", w.state.Seq)), Always: true}}, {Prompt: &p},
	}}
}

func retool(name string) law.Describe {
	return law.Describe{Agent: &dormouse.AgentConfig{
		Name: name, Model: "m", Tools: []dormouse.ToolConfig{{Name: "bash"}}, Shown: json.RawMessage(`{"name":"` + name + `"}`),
	}}
}

func layers(names ...string) (list []dormouse.Layer) {
	for _, n := range names {
		list = append(list, dormouse.Layer{Digest: dormouse.DigestOf([]byte(n)), DiffID: dormouse.DigestOf([]byte(n)), Size: 1})
	}
	return list
}

// snapshot is the snapshot that is wanted, or one that is not.
func (w *world) snapshot() law.TakeSnapshot {
	p := dormouse.Snapshot{
		ID: snapshotID("x"), Reason: dormouse.SnapshotAsked, At: w.state.Seq, Generation: w.state.Sandbox.Generation,
		Workspace: w.state.Workspace.Number, Layers: append(slices.Clip(w.state.Workspace.Chain), layers(fmt.Sprint(w.state.Seq))...),
	}
	if want := law.Want(w.state).Snapshot; want != nil {
		p.ID, p.Reason = want.ID, want.Reason
	}
	return law.TakeSnapshot{Snapshot: p}
}

func imports(name string) law.ImportSnapshot {
	return law.ImportSnapshot{Ask: dormouse.SnapshotAsk{ID: snapshotID(name)}, Layers: layers(name)}
}

func (w *world) swap(to uint64) law.Swap {
	return law.Swap{To: to, WorkspaceSwap: dormouse.WorkspaceSwap{
		Number: w.state.Workspace.Number + 1, Snapshot: snapshotID("0"), Layers: layers("0"), Reason: dormouse.SwapRestored,
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
			w.must(law.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: snapshotID("1")}})
			return w
		}},
		{"sealing", dormouse.PhaseHibernated, func(t testing.TB) *world {
			w := kept(t)
			w.must(law.Hibernate{})
			w.must(law.SandboxDown{Generation: 1})
			return w
		}},
		{"running", dormouse.PhaseRunning, func(t testing.TB) *world { return running(t, none) }},
		{"calling", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.must(law.StartOp{Work: w.work(), Op: w.modelOp()})
			return w
		}},
		{"acting", dormouse.PhaseRunning, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateNone)
			w.must(law.StartOp{Work: w.work(), Op: w.execOp(dormouse.OpExec)})
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
			w.must(law.FailAttempt{Work: w.work(), Error: "model_overloaded_error", Message: "busy", Retry: true, Until: w.now.Add(time.Second)})
			return w
		}},
		{"waiting", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateAsk)
			w.must(law.Block{Work: w.work()})
			return w
		}},
		{"asking", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateQuestion)
			w.must(law.Block{Work: w.work()})
			return w
		}},
		{"unanswered", dormouse.PhaseWaiting, func(t testing.TB) *world {
			w := running(t, none)
			w.ask(dormouse.GateQuestion)
			w.must(law.Block{Work: w.work()})
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
			w.must(law.Recover{})
			return w
		}},
		{"error", dormouse.PhaseError, func(t testing.TB) *world {
			w := running(t, none)
			w.must(law.FailAttempt{Work: w.work(), Error: "model_request_failed_error", Message: "no such model"})
			return w
		}},
		{"hibernating", dormouse.PhaseHibernating, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(law.Hibernate{})
			return w
		}},
		{"hibernated", dormouse.PhaseHibernated, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(law.Hibernate{}, law.SandboxDown{Generation: 1})
			return w
		}},
		{"waking", dormouse.PhaseWaking, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(law.Hibernate{}, law.SandboxDown{Generation: 1}, law.Wake{})
			return w
		}},
		{"terminated", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := warm(t, none)
			w.must(law.Terminate{Reason: "done"}, law.SandboxDown{Generation: 1})
			return w
		}},
		{"bereft", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(spawn("c"), law.ChildUp{Child: dormouse.ChildID(sid, "c")}, law.Terminate{Reason: "done"})
			return w
		}},
		{"ended beside its parent", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, dormouse.Created{Parent: "sesn_parent", Depth: 1})
			w.must(law.Terminate{Reason: "done"})
			return w
		}},
		{"archived", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(law.Archive{})
			return w
		}},
		{"deleted", dormouse.PhaseTerminated, func(t testing.TB) *world {
			w := newWorld(t, none)
			w.must(law.Delete{})
			return w
		}},
	}
}

// verbs lists every verb, each aimed at what the situation offers.
func verbs() []struct {
	name string
	aim  func(w *world) law.Verb
} {
	type row = struct {
		name string
		aim  func(w *world) law.Verb
	}
	open := func(w *world) dormouse.Op {
		if len(w.state.Ops) > 0 {
			return w.state.Ops[0].Op
		}
		return dormouse.Op{ID: "op_none"}
	}
	return []row{
		{"Create", func(*world) law.Verb { return law.Create{Created: dormouse.Created{Session: sid}} }},
		{"Prompt", func(w *world) law.Verb { return w.prompt("p2") }},
		{"Send", func(w *world) law.Verb { return redirect(w, "") }},
		{"Cancel", func(*world) law.Verb { return law.Cancel{Prompt: dormouse.PromptID(sid, "p1")} }},
		{"Interrupt", func(*world) law.Verb { return law.Interrupt{ID: "sevt_i"} }},
		{"Answer", func(w *world) law.Verb { return answer(w.use(), true) }},
		{"OpenThread", func(*world) law.Verb { return law.OpenThread{Thread: "sthr_second"} }},
		{"ArchiveThread", func(*world) law.Verb { return law.ArchiveThread{Thread: "sthr_other"} }},
		{"Schedule", func(w *world) law.Verb { return w.schedule("w2") }},
		{"Unschedule", func(*world) law.Verb { return law.Unschedule{ID: "wake_w"} }},
		{"Spawn", func(*world) law.Verb { return spawn("c2") }},
		{"EndChild", func(*world) law.Verb { return law.EndChild{Child: dormouse.ChildID(sid, "c")} }},
		{"Describe", func(*world) law.Verb { return law.Describe{Title: new("other"), Tags: &[]string{"b", "a"}} }},
		{"Describe its agent", func(*world) law.Verb { return retool("other") }},
		{"Archive", func(*world) law.Verb { return law.Archive{} }},
		{"Delete", func(*world) law.Verb { return law.Delete{} }},
		{"Retry", func(*world) law.Verb { return law.Retry{} }},
		{"Continue", func(*world) law.Verb { return law.Continue{} }},
		{"Hibernate", func(*world) law.Verb { return law.Hibernate{} }},
		{"Wake", func(*world) law.Verb { return law.Wake{} }},
		{"Terminate", func(*world) law.Verb { return law.Terminate{Reason: "asked"} }},
		{"Run", func(*world) law.Verb { return run("sevt_x2") }},
		{"EndExec", func(*world) law.Verb { return law.EndExec{Exec: "sevt_x"} }},
		{"StartExec", func(*world) law.Verb { return law.StartExec{Exec: "sevt_x", Args: "sha256:x"} }},
		{"Take", func(w *world) law.Verb { return w.take("p1") }},
		{"Recover", func(w *world) law.Verb { w.epoch++; return law.Recover{} }},
		{"StartAttempt", func(w *world) law.Verb { return law.StartAttempt{Turn: w.work().Turn} }},
		{"ReturnAttempt", func(w *world) law.Verb { return law.ReturnAttempt{Turn: w.work().Turn} }},
		{"FailAttempt", func(w *world) law.Verb {
			return law.FailAttempt{Work: w.work(), Error: "model_overloaded_error", Message: "busy", Retry: true}
		}},
		{"StartOp", func(w *world) law.Verb { return law.StartOp{Work: w.work(), Op: w.modelOp()} }},
		{"FinishOp", func(w *world) law.Verb {
			op := open(w)
			if op.Kind == dormouse.OpModel {
				return w.reply(op)
			}
			return w.toolResult(op)
		}},
		{"ApplyAction", func(w *world) law.Verb {
			return law.ApplyAction{Work: w.work(), Use: w.use().ID, Do: w.schedule("w3"), Text: "done"}
		}},
		{"LoseOp", func(w *world) law.Verb { return law.LoseOp{Op: open(w).ID, Why: "nobody knows"} }},
		{"Block", func(w *world) law.Verb { return law.Block{Work: w.work()} }},
		{"EndTurn", func(w *world) law.Verb { return law.EndTurn{Work: w.work()} }},
		{"Warm", func(*world) law.Verb { return law.Warm{} }},
		{"SandboxUp", func(w *world) law.Verb {
			return law.SandboxUp{Generation: w.state.Sandbox.Generation, Handle: json.RawMessage(`{}`)}
		}},
		{"SandboxGone", func(w *world) law.Verb {
			return law.SandboxGone{Generation: w.state.Sandbox.Generation, Reason: "it died"}
		}},
		{"SandboxDelayed", func(w *world) law.Verb {
			return law.SandboxDelayed{Generation: w.state.Sandbox.Generation, Reason: "no space left"}
		}},
		{"SandboxRelieved", func(w *world) law.Verb {
			return law.SandboxRelieved{Generation: w.state.Sandbox.Generation, Reason: "out of memory"}
		}},
		{"SandboxDown", func(w *world) law.Verb { return law.SandboxDown{Generation: w.state.Sandbox.Generation} }},
		{"RecordRecovery", func(w *world) law.Verb {
			return law.RecordRecovery{WorkspaceRecovery: dormouse.WorkspaceRecovery{ID: "cut", Workspace: w.state.Workspace.Number, Condition: "cut", Reason: "the machine ended"}}
		}},
		{"RecordRecovery again", func(w *world) law.Verb {
			r := law.RecordRecovery{WorkspaceRecovery: dormouse.WorkspaceRecovery{ID: "cut", Condition: "cut"}}
			w.must(r)
			return r
		}},
		{"AskSnapshot", func(*world) law.Verb {
			return law.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: snapshotID("2")}}
		}},
		{"TakeSnapshot", func(w *world) law.Verb { return w.snapshot() }},
		{"SkipSnapshot", func(w *world) law.Verb {
			p := w.snapshot()
			return law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{ID: p.ID, Reason: p.Reason, Error: "no room"}}
		}},
		{"ImportSnapshot", func(*world) law.Verb { return imports("7") }},
		{"ForgetSnapshots", func(*world) law.Verb {
			return law.ForgetSnapshots{IDs: []dormouse.SnapshotID{snapshotID("0"), snapshotID("nowhere")}}
		}},
		{"Swap", func(w *world) law.Verb { return w.swap(0) }},
		{"Swap and truncate", func(w *world) law.Verb { return w.swap(2) }},
		{"Touch", func(w *world) law.Verb {
			return law.Touch{WorkspaceTouch: dormouse.WorkspaceTouch{Generation: w.state.Sandbox.Generation, By: "terminal"}}
		}},
		{"Fire", func(w *world) law.Verb {
			return law.Fire{ID: "wake_w", Content: []dormouse.Block{dormouse.Text("again")}}
		}},
		{"ChildUp", func(*world) law.Verb { return law.ChildUp{Child: dormouse.ChildID(sid, "c")} }},
		{"ChildDown", func(*world) law.Verb {
			return law.ChildDown{Child: dormouse.ChildID(sid, "c"), Reason: "terminated"}
		}},
		{"ParentTold", func(*world) law.Verb { return law.ParentTold{} }},
		{"MakeRoom", func(*world) law.Verb { return law.Evict{} }},
		{"Tick", func(*world) law.Verb { return law.Tick{} }},
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
		if name := "law." + string(m[1]); !rows[name] {
			t.Errorf("%s has no row in the state table", name)
		}
	}
}

// TestEveryCellOfTheStateTableHolds walks every situation against every verb and
// compares what happens with docs/session.md, in both directions.
func TestEveryCellOfTheStateTableHolds(t *testing.T) {
	got := renderMatrix(t)
	const path = "../../docs/session.md"
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
		t.Errorf("docs/session.md and the machine disagree (-doc +code); if the code is right, go test ./session/law -run StateTable -update:\n%s", diff)
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
			if got := law.PhaseOf(w.state); got != s.phase {
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
			line := strings.Join(types, ", ") + " → " + string(law.PhaseOf(w.state))
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
			var replayed law.State
			for _, e := range w.log {
				replayed = law.Apply(replayed, e)
			}
			if diff := cmp.Diff(w.state, replayed); diff != "" {
				t.Errorf("%s in %s: replay differs: %s", v.name, s.name, diff)
			}
		}
	}
}
