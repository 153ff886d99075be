package law_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
)

// TestARandomWalkKeepsThePromises takes the machine through lives that no person
// would think of and checks every log against the law.
func TestARandomWalkKeepsThePromises(t *testing.T) {
	seed, walks := uint64(1), 60 // "make fuzz" takes more
	if s, err := strconv.ParseUint(os.Getenv("WALK_SEED"), 10, 64); err == nil {
		seed = s
	}
	if n, err := strconv.Atoi(os.Getenv("WALKS")); err == nil {
		walks = n
	}
	for i := range walks {
		walk(t, seed+uint64(i), 400)
	}
}

func walk(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	c := dormouse.Created{Warm: r.IntN(2) == 0, FlushOnError: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		c.Recovery = dormouse.RecoverAsk
	}
	if r.IntN(3) == 0 {
		c.SleepAfter = time.Minute
	}
	w := newWorld(t, c)
	prompts, accepted := 0, 0
	for step := range steps {
		v := randomVerb(w, r, &prompts)
		if v == nil {
			continue
		}
		if r.IntN(10) == 0 {
			w.now = w.now.Add(time.Duration(r.IntN(120)) * time.Second)
		}
		before := w.state
		events, err := w.try(v)
		if err != nil {
			if !errors.Is(err, dormouse.ErrConflict) && !errors.Is(err, dormouse.ErrTerminated) &&
				!errors.Is(err, dormouse.ErrNotFound) && !errors.Is(err, dormouse.ErrInvalid) {
				t.Fatalf("seed %d step %d: %T failed oddly: %v", seed, step, v, err)
			}
			if !reflect.DeepEqual(before, w.state) { // cmp would be most of the test's time
				t.Fatalf("seed %d step %d: a refusal changed the state: %s", seed, step, cmp.Diff(before, w.state))
			}
			continue
		}
		for _, e := range events {
			if e.Type == dormouse.PromptQueued {
				accepted++
			}
		}
	}
	if err := sessiontest.Check(w.log); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, dump(w.log))
	}
	var replayed law.State
	for _, e := range w.log {
		replayed = law.Apply(replayed, e)
	}
	if diff := cmp.Diff(w.state, replayed); diff != "" {
		t.Fatalf("seed %d: replay differs from live: %s", seed, diff)
	}
	raw, err := json.Marshal(w.state)
	if err != nil {
		t.Fatal(err)
	}
	var cached law.State
	if err := json.Unmarshal(raw, &cached); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(cached)
	if string(raw) != string(again) {
		t.Fatalf("seed %d: a cached state differs from the live one", seed)
	}
	checkRows(t, seed, w.log, accepted)
}

// checkRows compares rows laid out in one go with rows laid out batch by batch.
func checkRows(t *testing.T, seed uint64, log []dormouse.Event, accepted int) {
	t.Helper()
	_, whole := law.Project(law.State{}, log)
	var s law.State
	prompts := make(map[dormouse.EventID]dormouse.PromptRecord)
	ops := make(map[dormouse.OpID]dormouse.OpRecord)
	var last dormouse.Rows
	for i := range log {
		s, last = law.Project(s, log[i:i+1])
		for _, p := range last.Prompts {
			prompts[p.ID] = p
		}
		for _, o := range last.Ops {
			ops[o.ID] = o
		}
	}
	if diff := cmp.Diff(whole.Session, last.Session); diff != "" {
		t.Fatalf("seed %d: index differs: %s", seed, diff)
	}
	if len(whole.Prompts) != accepted || len(prompts) != accepted {
		t.Fatalf("seed %d: %d prompts accepted, %d and %d in the rows", seed, accepted, len(whole.Prompts), len(prompts))
	}
	for _, p := range whole.Prompts {
		if diff := cmp.Diff(p, prompts[p.ID]); diff != "" {
			t.Fatalf("seed %d: prompt row differs: %s", seed, diff)
		}
	}
	for _, o := range whole.Ops {
		if diff := cmp.Diff(o, ops[o.ID]); diff != "" {
			t.Fatalf("seed %d: op row differs: %s", seed, diff)
		}
	}
}

// randomVerb leans towards what could happen next, and now and then away from it.
func randomVerb(w *world, r *rand.Rand, prompts *int) law.Verb {
	w.at = w.state.Threads[r.IntN(len(w.state.Threads))].ID
	turn, box := w.turn(), w.state.Sandbox
	pick := func(vs ...law.Verb) law.Verb { return vs[r.IntN(len(vs))] }
	switch r.IntN(24) {
	case 20:
		n := r.IntN(30)
		if r.IntN(2) == 0 {
			return law.Schedule{ID: dormouse.WakeupID(fmt.Sprint("wake_", n)), Cron: "*/7 * * * *", Content: []dormouse.Block{dormouse.Text("cron")}}
		}
		return w.schedule(fmt.Sprint(n))
	case 21:
		if len(w.state.Wakeups) == 0 {
			return law.Unschedule{ID: "wake_none"}
		}
		wake := w.state.Wakeups[r.IntN(len(w.state.Wakeups))]
		if r.IntN(4) == 0 {
			return law.Unschedule{ID: wake.ID}
		}
		return law.Fire{ID: wake.ID, Content: []dormouse.Block{dormouse.Text("again")}}
	case 22:
		child := dormouse.ChildID(sid, "none")
		if n := len(w.state.Children); n > 0 {
			child = w.state.Children[r.IntN(n)].ID
		}
		return pick(spawn(fmt.Sprint(w.state.Seq)), law.EndChild{Child: child},
			law.ChildUp{Child: child}, law.ChildDown{Child: child}, law.ParentTold{})
	case 23:
		if r.IntN(40) == 0 {
			return pick(law.Archive{}, law.Delete{})
		}
		return pick(
			law.Describe{Title: new(fmt.Sprint("t", r.IntN(3))), Metadata: map[string]*string{"k": new("v"), "gone": nil}},
			law.Describe{Tags: &[]string{"x", fmt.Sprint(r.IntN(3))}},
			law.OpenThread{Thread: dormouse.ThreadID(fmt.Sprint("sthr_", r.IntN(3)))},
			law.ArchiveThread{Thread: dormouse.ThreadID(fmt.Sprint("sthr_", r.IntN(9)))},
			retool(fmt.Sprint("a", r.IntN(3))), redirect(w, dormouse.EventID(fmt.Sprint("sevt_q", r.IntN(5)))))
	case 0, 1:
		*prompts++
		return w.prompt(fmt.Sprint("p", *prompts))
	case 2:
		v := w.prompt(fmt.Sprint("p", r.IntN(*prompts+1)))
		if _, again := w.given[string(v.ID)]; again && r.IntN(3) == 0 {
			v.Body = "sha256:other"
		}
		return v
	case 3:
		return pick(
			law.Interrupt{Thread: w.at, ID: dormouse.EventID(fmt.Sprintf("sevt_i%d", w.state.Seq)), Flush: r.IntN(2) == 0},
			law.Cancel{Prompt: dormouse.PromptID(sid, fmt.Sprint("p", *prompts))},
			law.Retry{Thread: w.at}, law.Continue{Thread: w.at})
	case 4:
		if r.IntN(40) == 0 {
			return law.Terminate{Reason: "walk"}
		}
		return pick(law.Hibernate{}, law.Wake{}, law.Tick{}, law.Evict{}, law.Warm{})
	case 5:
		w.epoch++
		return law.Recover{}
	case 6:
		return pick(law.ReturnAttempt{Turn: w.work().Turn}, law.StartAttempt{Turn: w.work().Turn})
	case 7:
		return pick(
			law.SandboxGone{Generation: box.Generation, Reason: "died"},
			law.SandboxDelayed{Generation: box.Generation, Reason: "no space left"},
			law.SandboxRelieved{Generation: box.Generation, Reason: "out of memory"},
			law.SandboxDown{Generation: box.Generation},
			w.snapshot(), w.snapshot(), w.swap(0), w.swap(w.state.Seq/2),
			law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{ID: w.snapshot().ID, Reason: w.snapshot().Reason}},
			law.AskSnapshot{SnapshotAsk: dormouse.SnapshotAsk{ID: snapshotID(fmt.Sprint(r.IntN(50)))}},
			imports(fmt.Sprint(r.IntN(50))),
			law.ForgetSnapshots{IDs: []dormouse.SnapshotID{snapshotID(fmt.Sprint(r.IntN(50)))}})
	case 10, 11:
		id := dormouse.EventID(fmt.Sprint("sevt_x", r.IntN(200)))
		if len(w.state.Execs) > 0 && r.IntN(2) == 0 {
			x := w.state.Execs[r.IntN(len(w.state.Execs))]
			return pick(law.EndExec{Exec: x.ID}, law.StartExec{Exec: x.ID, Args: "sha256:x"})
		}
		return run(id)
	case 8, 9:
		return law.SandboxUp{
			Generation: box.Generation, Handle: json.RawMessage(`{}`), IdleTimeout: time.Duration(box.Generation%3) * time.Minute,
			Snapshots: []dormouse.SnapshotPolicy{"", dormouse.SnapshotsOff, dormouse.SnapshotsByTurn, dormouse.SnapshotsByCall}[r.IntN(4)], Seals: r.IntN(2) == 0,
		}
	}
	switch {
	case turn == nil:
		t := w.state.Thread(w.at)
		if len(t.Queue) == 0 {
			return nil
		}
		return law.Take{Thread: w.at, Prompt: t.Queue[0].ID, Content: []dormouse.Block{dormouse.Text("x")}}
	case turn.Blocked == "" && turn.Epoch == 0:
		return law.StartAttempt{Turn: turn.ID}
	}
	return randomWork(w, r, turn)
}

func randomWork(w *world, r *rand.Rand, turn *law.Turn) law.Verb {
	for _, o := range w.state.Ops {
		if o.Origin.Thread != w.at || r.IntN(3) == 0 {
			continue
		}
		switch {
		case o.Kind == dormouse.OpModel && r.IntN(4) == 0:
			return law.FinishOp{Work: w.work(), Op: o.ID, Outcome: dormouse.OutcomeError}
		case o.Kind == dormouse.OpModel:
			gates := []dormouse.Gate{dormouse.GateNone, dormouse.GateAsk, dormouse.GateCustom, dormouse.GateQuestion}
			var gs []dormouse.Gate
			for range r.IntN(4) {
				gs = append(gs, gates[r.IntN(4)])
			}
			return w.reply(o.Op, gs...)
		case o.Kind.InSandbox() && r.IntN(5) == 0:
			return law.LoseOp{Op: o.ID, Why: "walk"}
		case o.Kind.InSandbox():
			return w.toolResult(o.Op)
		case o.Kind == dormouse.OpMessage || o.Kind == dormouse.OpLook:
			return w.toolResult(o.Op)
		case o.Kind == dormouse.OpCustom || o.Kind == dormouse.OpApproval || o.Kind == dormouse.OpQuestion:
			use, _ := turn.Use(o.Use)
			return answer(use, r.IntN(2) == 0)
		}
	}
	for _, u := range turn.Uses {
		if u.Gate == dormouse.GateNone {
			switch r.IntN(6) {
			case 0:
				return law.ApplyAction{Work: w.work(), Use: u.ID, Do: w.schedule(fmt.Sprint("s", r.IntN(9))), Text: "scheduled"}
			case 1:
				kinds := []dormouse.OpKind{dormouse.OpMessage, dormouse.OpLook}
				op := w.execOp(kinds[r.IntN(2)])
				op.Generation = 0
				return law.StartOp{Work: w.work(), Op: op.Named(sid)}
			}
			kinds := []dormouse.OpKind{dormouse.OpExec, dormouse.OpTask, dormouse.OpWrite, dormouse.OpRead}
			return law.StartOp{Work: w.work(), Op: w.execOp(kinds[r.IntN(4)])}
		}
	}
	switch {
	case len(turn.Uses) > 0:
		return law.Block{Work: w.work()}
	case turn.Stop != "":
		return law.EndTurn{Work: w.work()}
	case r.IntN(10) == 0:
		return law.FailAttempt{Work: w.work(), Error: "model_overloaded_error", Message: "busy", Retry: r.IntN(4) > 0}
	}
	return law.StartOp{Work: w.work(), Op: w.modelOp()}
}

func dump(log []dormouse.Event) string {
	out := ""
	for _, e := range log[max(0, len(log)-60):] {
		out += fmt.Sprintf("%d %s %s %s\n", e.Seq, e.Type, e.ID, e.Payload)
	}
	return out
}
