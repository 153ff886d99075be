package oracle_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// change rewrites the fields of every event of a type.
func change(t *testing.T, e *oracle.Evidence, typ dormouse.EventType, fields map[string]any) {
	t.Helper()
	found := false
	for i := range e.Log {
		if e.Log[i].Type != typ {
			continue
		}
		payload := make(map[string]any)
		if err := json.Unmarshal(e.Log[i].Payload, &payload); err != nil {
			t.Fatal(err)
		}
		maps.Copy(payload, fields)
		e.Log[i].Payload = dormouse.Encode(payload)
		found = true
	}
	if !found {
		t.Fatalf("there is no %s", typ)
	}
}

func index(t *testing.T, e oracle.Evidence, typ dormouse.EventType) int {
	t.Helper()
	i := slices.IndexFunc(e.Log, func(x dormouse.Event) bool { return x.Type == typ })
	if i < 0 {
		t.Fatalf("there is no %s", typ)
	}
	return i
}

type broken struct {
	name   string
	zero   string
	change func(*testing.T, *oracle.Evidence)
}

// judgeBroken shows that nothing is wrong with what was seen, and that each
// change of it is found, with the words it is found with if there are any.
func judgeBroken(t *testing.T, name string, cases map[string]broken) {
	t.Helper()
	if f := oracle.Judge(seen[oracle.Evidence](t, name)); !f.OK() {
		t.Errorf("%s: %s", name, f)
	}
	for words, c := range cases {
		e := seen[oracle.Evidence](t, name)
		c.change(t, &e)
		found := oracle.Judge(e)[c.zero]
		if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, words) }) {
			t.Errorf("%s, and nothing %s says %q: %q", c.name, c.zero, words, found)
		}
	}
}

func TestCommandsOfPeopleRunOnceAndAreAnsweredTruly(t *testing.T) {
	judgeBroken(t, "asked.json", map[string]broken{
		"happened twice": {"it ran twice", oracle.Double, func(_ *testing.T, e *oracle.Evidence) { e.Effects = append(e.Effects, e.Effects[0]) }},
		"of 2 effects":   {"half of it ran", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) { e.Effects = e.Effects[:1] }},
		"asked for 2 times": {"it was taken twice", oracle.Double, func(t *testing.T, e *oracle.Evidence) {
			i := index(t, *e, dormouse.ExecAsked)
			e.Log = slices.Insert(e.Log, i, e.Log[i])
		}},
		"answered 2 times": {"it was answered twice", oracle.Double, func(t *testing.T, e *oracle.Evidence) {
			i := index(t, *e, dormouse.ExecAnswered)
			e.Log = slices.Insert(e.Log, i, e.Log[i])
		}},
		"never answered": {"it was forgotten", oracle.Stuck, func(t *testing.T, e *oracle.Evidence) {
			i := index(t, *e, dormouse.ExecAnswered)
			e.Log = slices.Delete(e.Log, i, i+1)
		}},
		"knows no answer": {"the answer is not in the log", oracle.Lost, func(t *testing.T, e *oracle.Evidence) {
			i := index(t, *e, dormouse.ExecAnswered)
			e.Log = slices.Delete(e.Log, i, i+1)
		}},
		"nobody asked": {"the asking is not in the log", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			i := index(t, *e, dormouse.ExecAsked)
			e.Log = slices.Delete(e.Log, i, i+1)
		}},
		"the client was answered": {"the answer was another", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) { e.Asked[0].Answer.Exit++ }},
		"not what it does": {"the answer is not true", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			change(t, e, dormouse.ExecAnswered, map[string]any{"exit": 0})
			e.Asked[0].Answer.Exit = 0
		}},
		"called unknown": {"nobody knows, for no reason", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			change(t, e, dormouse.ExecAnswered, map[string]any{"unknown": true})
		}},
		"nobody wanted that": {"it was killed, for no reason", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			change(t, e, dormouse.ExecAnswered, map[string]any{"killed": true})
		}},
		"never began": {"it was refused, for no reason", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			e.Log[index(t, *e, dormouse.ExecAnswered)].Type = dormouse.ExecRefused
		}},
		"stirred": {"a sandbox stirs that is not there", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			x := e.Log[index(t, *e, dormouse.SandboxStarted)]
			x.Type, x.Payload = dormouse.SandboxStirred, dormouse.Encode(dormouse.SandboxFact{Generation: 7})
			e.Log = append(e.Log, x)
		}},
	})
}

func TestWorkIsNotLost(t *testing.T) {
	last := func(e *oracle.Evidence) *oracle.Look { return &e.Looks[len(e.Looks)-1] }
	lose := func(t *testing.T, e *oracle.Evidence) {
		change(t, e, dormouse.SandboxStarted, map[string]any{"processes": dormouse.ProcessesLost})
	}
	judgeBroken(t, "counter.json", map[string]broken{
		"a process is gone": {"a process died", oracle.LostWork, func(_ *testing.T, e *oracle.Evidence) { last(e).Counts = false }},
		"seen a count":      {"a count went back", oracle.LostWork, func(_ *testing.T, e *oracle.Evidence) { last(e).Count = 1 }},
		"went on from":      {"memory is older than files", oracle.LostWork, func(_ *testing.T, e *oracle.Evidence) { last(e).Ordered = false }},
		"note-3 was written": {"a file is gone", oracle.LostWork, func(_ *testing.T, e *oracle.Evidence) {
			last(e).Notes = slices.DeleteFunc(last(e).Notes, func(n string) bool { return n == "note-3" })
		}},
		"processes were lost": {"they are said to be lost and live", oracle.Diverged, lose},
	})
	e := seen[oracle.Evidence](t, "counter.json")
	lose(t, &e)
	for i := range e.Looks {
		e.Looks[i].Counts = false
	}
	found := oracle.Judge(e)[oracle.LostWork]
	if n := len(found); n != 1 { // the first look was before any of them was lost
		t.Errorf("the log says that processes were lost, and %d looks are held against it: %q", n, found)
	}
}

func TestAnEffectThatIsGoneFromTheWorkspaceIsLostWork(t *testing.T) {
	e := good(t)
	e.Inside, e.Effects, e.Writes = true, e.Effects[:1], nil
	if found := oracle.Judge(e)[oracle.LostWork]; len(found) != 2 {
		t.Errorf("a mark and a file are gone: %q", found)
	}
}

// listed puts what the server would list of a session into what was seen of it.
func listed(e *oracle.Evidence, change func(*session.Row)) {
	_, rows := law.Project(law.State{}, e.Log)
	change(&rows.Session)
	e.Rows.Row = dormouse.Encode(rows.Session)
}

func TestEveryColumnOfTheIndexFollowsFromTheLog(t *testing.T) {
	judgeBroken(t, "asked.json", map[string]broken{
		"OutputTokens": {"a model call was counted twice", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) {
			listed(e, func(r *session.Row) { r.Metrics.OutputTokens++ })
		}},
		"the ops say": {"it cost more than its ops", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) {
			listed(e, func(r *session.Row) { r.Metrics.CostMicros = 1 })
		}},
		"Due":      {"it is due for nothing", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) { listed(e, func(r *session.Row) { r.Due = time.Unix(9, 0) }) }},
		"Owner":    {"it is somebody else's", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) { listed(e, func(r *session.Row) { r.Owner = "user:eve" }) }},
		"Archived": {"it is put away", oracle.Diverged, func(_ *testing.T, e *oracle.Evidence) { listed(e, func(r *session.Row) { r.Archived = r.Created }) }},
	})
	e := seen[oracle.Evidence](t, "asked.json")
	listed(&e, func(*session.Row) {})
	if f := oracle.Judge(e); !f.OK() {
		t.Error(f)
	}
}

// loseOp makes the outcome of the first command's op unknown.
func loseOp(t *testing.T, e *oracle.Evidence, lost bool) (op dormouse.Event) {
	t.Helper()
	for i, x := range e.Log {
		switch p := rig.Decode[dormouse.OpFact](x); {
		case x.Type == dormouse.OpStarted && p.Op.Kind == dormouse.OpExec && op.Seq == 0:
			op = x
		case x.Type == dormouse.OpFinished && rig.Decode[dormouse.OpEnd](x).Op == rig.Decode[dormouse.OpFact](op).Op.ID:
			e.Log[i].Type = dormouse.OpUnknown
			if lost {
				x.Type, x.Payload = dormouse.SandboxLost, dormouse.Encode(dormouse.SandboxFact{Generation: rig.Decode[dormouse.OpFact](op).Op.Generation})
				e.Log = slices.Insert(e.Log, i, x)
			}
			return op
		}
	}
	t.Fatal("there is no command")
	return op
}

func TestAnUnknownOutcomeNeedsAReason(t *testing.T) {
	judgeBroken(t, "asked.json", map[string]broken{
		"was not lost since": {"its sandbox is there", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) { loseOp(t, e, false) }},
		"cannot have run": {"the server never reached its sandbox", oracle.Diverged, func(t *testing.T, e *oracle.Evidence) {
			op := loseOp(t, e, true)
			asked := &e.Log[index(t, *e, dormouse.ExecAsked)]
			asked.Time = op.Time
			e.Lives = []time.Time{op.Time.Add(-time.Hour), op.Time.Add(-time.Microsecond)}
		}},
	})
	e := seen[oracle.Evidence](t, "asked.json")
	op := loseOp(t, &e, true)
	e.Lives = []time.Time{op.Time.Add(-time.Hour)} // by the process that had started the sandbox
	for _, text := range oracle.Judge(e)[oracle.Diverged] {
		if strings.Contains(text, "cannot have run") || strings.Contains(text, "was not lost since") {
			t.Error(text)
		}
	}
}

func TestAWakeupThatIsDueHasFired(t *testing.T) {
	e := seen[oracle.Evidence](t, "asked.json")
	last := e.Log[len(e.Log)-1]
	due := last.Time.Add(time.Minute)
	last.Seq++
	last.Type, last.Payload = dormouse.WakeupScheduled, dormouse.Encode(dormouse.Wakeup{ID: "wake_x", At: due})
	e.Log = append(e.Log, last)
	for looked, want := range map[time.Duration]bool{0: false, time.Hour: true} { //nolint:exhaustive // any duration will do
		e.Lives, e.Looked = []time.Time{due.Add(-time.Hour)}, due.Add(looked)
		found := slices.ContainsFunc(oracle.Judge(e)[oracle.Stuck], func(text string) bool { return strings.Contains(text, "wake_x") })
		if found != want {
			t.Errorf("%s after its time: found missing %v, want %v", looked, found, want)
		}
	}
}
