package oracle_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// tree is what was seen of a session that was described, prompted itself, asked
// people a question, and had a child: spawned, messaged, waited for, terminated.
func tree(t *testing.T) oracle.Tree {
	t.Helper()
	return seen[oracle.Tree](t, "tree.json")
}

func TestNothingIsWrongWithAGoodTree(t *testing.T) {
	if f := tree(t).Judge(); !f.OK() {
		t.Error(f)
	}
}

func TestEveryZeroOfATreeCanBeMissed(t *testing.T) {
	const root, child = 0, 1
	drop := func(e *oracle.Evidence, typ dormouse.EventType) {
		e.Log = slices.DeleteFunc(e.Log, func(x dormouse.Event) bool { return x.Type == typ })
	}
	repeat := func(e *oracle.Evidence, typ dormouse.EventType) {
		i := slices.IndexFunc(e.Log, func(x dormouse.Event) bool { return x.Type == typ })
		e.Log = slices.Insert(e.Log, i, e.Log[i])
	}
	// edit changes the payload of the first event of a type.
	edit := func(e *oracle.Evidence, typ dormouse.EventType, change func(map[string]any)) {
		i := slices.IndexFunc(e.Log, func(x dormouse.Event) bool { return x.Type == typ })
		var p map[string]any
		if err := json.Unmarshal(e.Log[i].Payload, &p); err != nil {
			t.Fatal(err)
		}
		change(p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		e.Log[i].Payload = b
	}
	at := func(e *oracle.Evidence, typ dormouse.EventType) *dormouse.Event {
		return &e.Log[slices.IndexFunc(e.Log, func(x dormouse.Event) bool { return x.Type == typ })]
	}
	for _, c := range []struct {
		name   string
		zero   string
		change func(oracle.Tree) oracle.Tree
	}{
		{"a child that was started is not there", oracle.Lost, func(t oracle.Tree) oracle.Tree { return t[:1] }},
		{"a child was made and nobody asked for it", oracle.Double, func(t oracle.Tree) oracle.Tree {
			drop(&t[root], dormouse.ChildSpawned)
			return t
		}},
		{"a child was asked for and forgotten", oracle.Stuck, func(t oracle.Tree) oracle.Tree {
			drop(&t[root], dormouse.ChildStarted)
			drop(&t[root], dormouse.ChildEnded)
			return t
		}},
		{"a child outlives its parent", oracle.Stuck, func(t oracle.Tree) oracle.Tree {
			drop(&t[root], dormouse.ChildEnded)
			x := *at(&t[child], dormouse.SessionTerminated)
			x.Seq = uint64(len(t[root].Log) + 1)
			t[root].Log = append(t[root].Log, x)
			return t
		}},
		{"a child that ended keeps its place", oracle.Stuck, func(t oracle.Tree) oracle.Tree {
			drop(&t[root], dormouse.ChildEnded)
			return t
		}},
		{"a child that ended was not terminated", oracle.Diverged, func(t oracle.Tree) oracle.Tree {
			drop(&t[child], dormouse.SessionTerminated)
			return t
		}},
		{"a child was terminated twice", oracle.Double, func(t oracle.Tree) oracle.Tree {
			repeat(&t[child], dormouse.SessionTerminated)
			return t
		}},
		{"a child was made after it had ended", oracle.Late, func(t oracle.Tree) oracle.Tree {
			at(&t[root], dormouse.ChildEnded).Time = at(&t[child], dormouse.SessionCreated).Time.Add(-time.Second)
			return t
		}},
		{"a child is another one's", oracle.Diverged, func(t oracle.Tree) oracle.Tree {
			edit(&t[child], dormouse.SessionCreated, func(p map[string]any) { p["parent"] = "sesn_other" })
			return t
		}},
		{"a child lacks what it was sent", oracle.Lost, func(t oracle.Tree) oracle.Tree {
			drop(&t[child], dormouse.PromptQueued)
			return t
		}},
		{"a command ran in two sessions", oracle.Double, func(t oracle.Tree) oracle.Tree {
			t[root].Effects = append(t[root].Effects, t[child].Effects[0])
			return t
		}},
		{"an answer to a question is gone", oracle.Lost, func(t oracle.Tree) oracle.Tree {
			drop(&t[root], dormouse.QuestionAnswered)
			return t
		}},
		{"a question was answered twice", oracle.Double, func(t oracle.Tree) oracle.Tree {
			repeat(&t[root], dormouse.QuestionAnswered)
			return t
		}},
		{"a question expired early", oracle.Lost, func(t oracle.Tree) oracle.Tree {
			at(&t[root], dormouse.QuestionAnswered).Type = dormouse.QuestionExpired
			return t
		}},
		{"a wake-up fired twice", oracle.Double, func(t oracle.Tree) oracle.Tree {
			repeat(&t[root], dormouse.WakeupFired)
			return t
		}},
		{"a wake-up lost its prompt", oracle.Lost, func(t oracle.Tree) oracle.Tree {
			edit(&t[root], dormouse.WakeupFired, func(p map[string]any) { p["prompt"] = "sevt_other" })
			return t
		}},
		{"a description is gone", oracle.Lost, func(t oracle.Tree) oracle.Tree {
			t[root].Shown.Tags = nil
			return t
		}},
	} {
		if f := c.change(tree(t)).Judge(); len(f[c.zero]) == 0 {
			t.Errorf("%s, and nothing was found %s:\n%s", c.name, c.zero, f)
		}
	}
}
