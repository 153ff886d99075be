package hibernation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// written are the first records of a writer.
func written(name string, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, record(name, i+1)...)
	}
	return b
}

func event(t *testing.T, typ dormouse.EventType, payload any) dormouse.Event {
	t.Helper()
	raw, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	return dormouse.Event{Type: typ, Payload: raw}
}

// good is a session that slept once with its writer, and lost it then.
func good(t *testing.T) evidence {
	t.Helper()
	ran := func(use dormouse.EventID, generation uint64) dormouse.Event {
		return event(t, dormouse.OpStarted, dormouse.OpFact{Op: dormouse.Op{Use: use, Generation: generation}})
	}
	box := func(typ dormouse.EventType, generation uint64, processes string) dormouse.Event {
		return event(t, typ, dormouse.SandboxFact{Generation: generation, Processes: processes})
	}
	first, second := writer{"w0", "start0"}, writer{"w1", "start1"}
	seen := written("w0", 30)
	return evidence{
		Records: slices.Concat(written("w0", 40), written("w1", 20)),
		Writers: []writer{first, second},
		Looks: []look{
			{Exec: "look0", Writer: first, Alive: true, Size: len(seen), Sum: sum(seen)},
			{Exec: "look1", Writer: first, Size: len(written("w0", 40)), Sum: sum(written("w0", 40))},
		},
		Log: []dormouse.Event{
			box(dormouse.SandboxStarted, 1, ""), ran("start0", 1),
			box(dormouse.SandboxStopped, 1, dormouse.ProcessesKept), box(dormouse.SandboxStarted, 2, dormouse.ProcessesKept), ran("look0", 2),
			box(dormouse.SandboxLost, 2, ""), box(dormouse.SandboxStarted, 3, ""), ran("look1", 3), ran("start1", 3),
		},
	}
}

func TestRecordsThatAreAllThereAreGood(t *testing.T) {
	if f := good(t).judge(); !f.OK() {
		t.Errorf("%v", f)
	}
	b := readBoxes(good(t).Log)
	if b.hibernated != 1 || b.woken != 2 || b.restored != 1 || b.reported != 1 {
		t.Errorf("counted %+v", b)
	}
}

func TestDamageIsFound(t *testing.T) {
	cases := map[string]struct {
		zero, words string
		damage      func(*evidence)
	}{
		"a byte is another":          {Corrupt, "it is not record", func(e *evidence) { e.Records[700] ^= 1 }},
		"what was seen is another":   {Corrupt, "not those that somebody saw", func(e *evidence) { e.Records[700] ^= 1 }},
		"a hole of zeroes":           {Corrupt, "at byte", func(e *evidence) { copy(e.Records[100:], make([]byte, 50)) }},
		"the end is cut off":         {Corrupt, "it is not record", func(e *evidence) { e.Records = e.Records[:len(e.Records)-5] }},
		"a record is missing":        {oracle.Lost, "record 9 of w0 comes after record 7", func(e *evidence) { e.Records = bytes.Replace(e.Records, []byte(record("w0", 8)), nil, 1) }},
		"the first is missing":       {oracle.Lost, "record 2 of w1 comes after record 0", func(e *evidence) { e.Records = bytes.Replace(e.Records, []byte(record("w1", 1)), nil, 1) }},
		"a record is there twice":    {oracle.Double, "record 8 of w0 comes again", func(e *evidence) { e.Records = append(e.Records, record("w0", 8)...) }},
		"the file is older":          {oracle.Lost, "somebody saw", func(e *evidence) { e.Records = written("w0", 20) }},
		"all of a writer is gone":    {oracle.Lost, "none of its records", func(e *evidence) { e.Records = written("w1", 60) }},
		"it is gone and nobody says": {Silent, "does not say", func(e *evidence) { e.Log = slices.Delete(e.Log, 5, 6) }},
		"it is said to be gone": {oracle.Diverged, "goes on", func(e *evidence) {
			e.Looks[1].Alive = true
		}},
	}
	for name, c := range cases {
		e := good(t)
		c.damage(&e)
		found := e.judge()[c.zero]
		if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, c.words) }) {
			t.Errorf("%s, and nothing %s says %q: %q", name, c.zero, c.words, found)
		}
	}
}

func TestASummaryWithFindingsIsNotGood(t *testing.T) {
	s := Summary{Findings: oracle.Findings{Silent: {"a process"}}}
	if s.OK() || !strings.Contains(s.String(), "silent=1") || !strings.Contains(s.Wrong(), "silent: a process") {
		t.Errorf("%v: %s", s.OK(), s)
	}
	s = Summary{}
	s.Leaks.Mounts = []string{"mount /x"}
	if s.OK() || !strings.Contains(s.String(), "mounts=1") || !strings.Contains(s.Wrong(), "leak: mount /x") {
		t.Errorf("%v: %s", s.OK(), s)
	}
}
