package oracle_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// good is what was seen of a turn that ran a command and wrote a file.
func good(t *testing.T) oracle.Evidence {
	t.Helper()
	return seen[oracle.Evidence](t, "exec.json")
}

// seen reads what was once seen of a real server.
func seen[T any](t *testing.T, name string) (v T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNothingIsWrongWithWhatIsGood(t *testing.T) {
	if f := oracle.Judge(good(t)); !f.OK() {
		t.Error(f)
	}
}

func TestEveryZeroCanBeMissed(t *testing.T) {
	drop := func(log []dormouse.Event, typ dormouse.EventType) []dormouse.Event {
		return slices.DeleteFunc(log, func(e dormouse.Event) bool { return e.Type == typ })
	}
	end := func(e *oracle.Evidence, kind dormouse.OpKind) *dormouse.Event {
		for i := range e.Log {
			var p dormouse.OpEnd
			if e.Log[i].Type == dormouse.OpFinished && json.Unmarshal(e.Log[i].Payload, &p) == nil && p.Kind == kind {
				return &e.Log[i]
			}
		}
		t.Fatalf("no %s ends", kind)
		return nil
	}
	for _, c := range []struct {
		name   string
		zero   string
		change func(*oracle.Evidence)
	}{
		{"an acknowledged prompt is not in the log", oracle.Lost, func(e *oracle.Evidence) { e.Log = drop(e.Log, dormouse.PromptQueued) }},
		{"a prompt has another body", oracle.Lost, func(e *oracle.Evidence) { e.Acks[0].Content += "!" }},
		{"a prompt never ran", oracle.Lost, func(e *oracle.Evidence) { e.Log = drop(e.Log, dormouse.PromptCompleted) }},
		{"a fragment that was seen is gone", oracle.Lost, func(e *oracle.Evidence) {
			var p dormouse.OpEnd
			if err := json.Unmarshal(end(e, dormouse.OpModel).Payload, &p); err != nil {
				t.Fatal(err)
			}
			e.Texts = map[dormouse.OpID][]string{p.Op: {"never said"}}
		}},
		{"a command ran twice", oracle.Double, func(e *oracle.Evidence) { e.Effects = append(e.Effects, e.Effects[0]) }},
		{"a command ran again under another op", oracle.Double, func(e *oracle.Evidence) {
			x := e.Effects[0]
			x.Op = "op_other"
			e.Effects = append(e.Effects, x)
		}},
		{"a file was written twice", oracle.Double, func(e *oracle.Evidence) {
			for name, w := range e.Writes {
				w.Times++
				e.Writes[name] = w
			}
		}},
		{"a recovery was told twice", oracle.Double, func(e *oracle.Evidence) {
			x := e.Log[len(e.Log)-1]
			x.Type, x.Payload = dormouse.WorkspaceRecovered, json.RawMessage(`{"recovery":"one","id":"one"}`)
			e.Log = append(e.Log, x, x)
		}},
		{"a model call was made behind the log's back", oracle.Double, func(e *oracle.Evidence) { e.Calls.Effects++ }},
		{"a command went on after its end was recorded", oracle.Late, func(e *oracle.Evidence) {
			e.Effects[1].At = end(e, dormouse.OpExec).Time.Add(time.Microsecond)
		}},
		{"a file came after its op was called unknown", oracle.Late, func(e *oracle.Evidence) {
			end(e, dormouse.OpWrite).Type = dormouse.OpUnknown
			for name, w := range e.Writes {
				w.At = end(&oracle.Evidence{Log: good(t).Log}, dormouse.OpWrite).Time.Add(time.Second)
				e.Writes[name] = w
			}
		}},
		{"a command left no trace", oracle.Diverged, func(e *oracle.Evidence) { e.Effects = e.Effects[:1] }},
		{"a command ran before it was recorded", oracle.Diverged, func(e *oracle.Evidence) { e.Effects[0].At = time.Unix(0, 0) }},
		{"the log knows no op of a command", oracle.Diverged, func(e *oracle.Evidence) { e.Effects[0].Op = "op_other" }},
		{"another phase is shown", oracle.Diverged, func(e *oracle.Evidence) { e.Shown.Phase = dormouse.PhaseRunning }},
		{"another phase is listed", oracle.Diverged, func(e *oracle.Evidence) { e.Rows.Index.Phase = dormouse.PhaseRunning }},
		{"an op is not listed", oracle.Diverged, func(e *oracle.Evidence) { e.Rows.Ops = e.Rows.Ops[1:] }},
		{"the model was sent an invalid transcript", oracle.Diverged, func(e *oracle.Evidence) { e.Calls.Refused = []string{"no"} }},
		{"a seq is missing", oracle.Diverged, func(e *oracle.Evidence) { e.Log = slices.Delete(e.Log, 3, 4) }},
		{"a follower was told that an event is lost", oracle.Gaps, func(e *oracle.Evidence) { lose(e) }},
		{"a follower was told that something else is lost", oracle.Gaps, func(e *oracle.Evidence) {
			lose(e)
			e.Damaged, e.Followed[3].Payload = true, []byte(`{"lost":"sha256:other"}`)
		}},
		{"a follower missed an event", oracle.Gaps, func(e *oracle.Evidence) { e.Followed = slices.Delete(e.Followed, 3, 4) }},
		{"a follower saw an event twice", oracle.Gaps, func(e *oracle.Evidence) { e.Followed = slices.Insert(e.Followed, 3, e.Followed[3]) }},
		{"a follower missed the end", oracle.Gaps, func(e *oracle.Evidence) { e.Followed = e.Followed[:len(e.Followed)-1] }},
	} {
		e := good(t)
		c.change(&e)
		if f := oracle.Judge(e); len(f[c.zero]) == 0 {
			t.Errorf("%s, and nothing was found %s:\n%s", c.name, c.zero, f)
		}
	}
}

// lose has the follower see the fourth event as lost.
func lose(e *oracle.Evidence) {
	e.Followed = slices.Clone(e.Followed)
	e.Followed[3].Payload = dormouse.Encode(dormouse.Lost{Blob: dormouse.DigestOf(e.Followed[3].Payload)})
}

func TestWhatWasDamagedMayBeShownAsLost(t *testing.T) {
	e := good(t)
	lose(&e)
	e.Damaged = true
	if f := oracle.Judge(e); len(f) > 0 {
		t.Errorf("found %v", f)
	}
}
