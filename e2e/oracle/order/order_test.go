package order_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/oracle/order"
)

// obj is an event to be.
type obj map[string]any

// raw writes events down. Each gets the time of its place unless it has one.
func raw(events []obj) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(events))
	for i, e := range events {
		stamped := obj{}
		if t, _ := e["type"].(string); t != "event_start" && t != "event_delta" {
			stamped["processed_at"] = at(i)
		}
		for k, v := range e {
			if v == absent {
				delete(stamped, k)
				continue
			}
			stamped[k] = v
		}
		b, err := json.Marshal(stamped)
		if err != nil {
			panic(err)
		}
		out = append(out, b)
	}
	return out
}

func at(i int) string { return fmt.Sprintf("2026-11-15T22:%02d:%02dZ", i/60, i%60) }

// absent leaves a field out.
const absent = "\x00absent"

func ev(kind, id string, more ...obj) obj {
	e := obj{"type": kind, "id": id}
	for _, m := range more {
		maps.Copy(e, m)
	}
	return e
}

var (
	endTurn = obj{"stop_reason": obj{"type": "end_turn"}, "stop_details": nil}
	primary = obj{"session_thread_id": "sthr_1", "agent_name": "a"}
)

func waits(ids ...string) obj {
	return obj{"stop_reason": obj{"type": "requires_action", "event_ids": ids}, "stop_details": nil}
}

func merge(parts ...obj) obj { return ev("", "", parts...) }

// begins is how a session starts to run, stops how it is idle again.
func begins(n int) []obj {
	return []obj{
		ev("session.status_running", fmt.Sprintf("run%d", n)),
		ev("session.thread_status_running", fmt.Sprintf("trun%d", n), primary),
	}
}

func stops(n int, reason obj) []obj {
	return []obj{
		ev("session.thread_status_idle", fmt.Sprintf("tidle%d", n), primary, reason),
		ev("session.usage", fmt.Sprintf("usage%d", n)),
		ev("session.status_idle", fmt.Sprintf("idle%d", n), reason),
	}
}

func said(id, text string) obj {
	return ev("agent.message", id, obj{"content": []obj{{"type": "text", "text": text}}})
}

// good is a log with all that a session without subagents goes through.
func good() []obj {
	return slices.Concat(
		// A turn with a tool that is simply run.
		[]obj{ev("user.message", "m1")}, begins(1),
		[]obj{
			ev("span.model_request_start", "s1"),
			ev("agent.thinking", "th1"),
			said("a1", "I will look."),
			ev("agent.tool_use", "t1", obj{"evaluated_permission": "allow"}),
			ev("span.model_request_end", "e1", obj{"model_request_start_id": "s1"}),
			ev("agent.tool_result", "r1", obj{"tool_use_id": "t1"}),
			ev("span.model_request_start", "s2"),
			said("a2", "Done."),
			ev("span.model_request_end", "e2", obj{"model_request_start_id": "s2"}),
		}, stops(1, endTurn),
		// People are asked twice, a client once; answers come one by one.
		[]obj{ev("user.message", "m2")}, begins(2),
		[]obj{
			ev("span.model_request_start", "s3"),
			ev("agent.tool_use", "t2", obj{"evaluated_permission": "ask"}),
			ev("agent.tool_use", "t3", obj{"evaluated_permission": "ask"}),
			ev("agent.custom_tool_use", "c1"),
			ev("span.model_request_end", "e3", obj{"model_request_start_id": "s3"}),
		}, stops(2, waits("t2", "t3", "c1")),
		[]obj{ev("user.custom_tool_result", "cr1", obj{"custom_tool_use_id": "c1"})}, stops(3, waits("t2", "t3")),
		[]obj{
			ev("user.tool_confirmation", "f1", obj{"tool_use_id": "t2", "result": "deny"}),
			ev("agent.tool_result", "r2", obj{"tool_use_id": "t2", "is_error": true}),
		}, stops(4, waits("t3")),
		[]obj{ev("user.tool_confirmation", "f2", obj{"tool_use_id": "t3", "result": "allow"})}, begins(3),
		[]obj{
			ev("agent.tool_result", "r3", obj{"tool_use_id": "t3"}),
			ev("span.model_request_start", "s4"),
			said("a3", "So be it."),
			ev("span.model_request_end", "e4", obj{"model_request_start_id": "s4"}),
		}, stops(5, endTurn),
		// A turn that is interrupted, and what was said instead.
		[]obj{ev("user.message", "m3")}, begins(4),
		[]obj{
			ev("span.model_request_start", "s5"),
			ev("agent.tool_use", "t4", obj{"evaluated_permission": "allow"}),
			ev("span.model_request_end", "e5", obj{"model_request_start_id": "s5"}),
			ev("user.interrupt", "i1"),
			ev("agent.tool_result", "r4", obj{"tool_use_id": "t4", "is_error": true}),
		}, stops(6, endTurn),
		// A turn that waits for a client is interrupted.
		[]obj{ev("user.message", "m4"), ev("system.message", "sys1")}, begins(5),
		[]obj{
			ev("span.model_request_start", "s6"),
			ev("agent.custom_tool_use", "c2"),
			ev("span.model_request_end", "e6", obj{"model_request_start_id": "s6"}),
		}, stops(7, waits("c2")), []obj{ev("user.interrupt", "i2")}, stops(8, endTurn),
		// A turn that fails, is tried again, and fails for good.
		[]obj{ev("user.message", "m5")}, begins(6),
		[]obj{
			ev("span.model_request_start", "s7"),
			ev("span.model_request_end", "e7", obj{"model_request_start_id": "s7"}),
			ev("session.error", "x1", obj{"error": obj{"type": "model_overloaded_error", "retry_status": obj{"type": "retrying"}}}),
			ev("session.status_rescheduled", "resch1"),
			ev("session.thread_status_rescheduled", "tresch1", primary),
		},
		[]obj{ev("session.error", "x2", obj{"error": obj{"type": "model_overloaded_error", "retry_status": obj{"type": "exhausted"}}})},
		stops(9, obj{"stop_reason": obj{"type": "retries_exhausted"}}),
		[]obj{ev("session.updated", "u1")},
	)
}

// closed is a log of a session that was archived, waiting one that is busy and
// has more to do.
func closed() []obj {
	return slices.Concat(good(), []obj{
		ev("session.thread_status_terminated", "tterm", primary),
		ev("session.status_terminated", "term"),
	})
}

func waiting() []obj {
	return slices.Concat(good(), []obj{ev("user.message", "m6")}, begins(8), []obj{
		ev("span.model_request_start", "s8"),
		ev("user.message", "m7", obj{"processed_at": nil}),
		ev("user.interrupt", "i3", obj{"processed_at": nil}),
	})
}

// previewed is what a connection saw that asked for previews.
func previewed() []obj {
	start := func(kind, id string) obj { return obj{"type": "event_start", "event": obj{"type": kind, "id": id}} }
	delta := func(id string, index int, text string) obj {
		return obj{"type": "event_delta", "event_id": id, "delta": obj{"type": "content_delta", "index": index, "content": obj{"type": "text", "text": text}}}
	}
	return slices.Concat(
		[]obj{ev("user.message", "m1", obj{"processed_at": nil}), ev("user.message", "m1")}, begins(1),
		[]obj{
			ev("span.model_request_start", "s1"),
			start("agent.thinking", "th1"),
			ev("agent.thinking", "th1"),
			start("agent.message", "a1"),
			delta("a1", 0, "I will"),
			delta("a1", 0, " lo"),
			said("a1", "I will look."),
			start("agent.message", "a9"),
			delta("a9", 0, "never"),
			ev("span.model_request_end", "e1", obj{"model_request_start_id": "s1"}),
			ev("span.model_request_start", "s2"),
			said("a2", "Done."),
			ev("span.model_request_end", "e2", obj{"model_request_start_id": "s2"}),
		}, stops(1, endTurn), []obj{ev("session.deleted", "del")},
	)
}

var asked = []string{"agent.message", "agent.thinking"}

func TestWhatIsInOrderIsNotFoundFault(t *testing.T) {
	for name, log := range map[string][]obj{"good": good(), "closed": closed(), "waiting": waiting(), "empty": nil} {
		if found := order.Log(raw(log)); len(found) > 0 {
			t.Errorf("%s:\n%s", name, order.Format(found, raw(log)))
		}
	}
	if found := order.Stream(raw(previewed()), asked); len(found) > 0 {
		t.Errorf("previews:\n%s", order.Format(found, raw(previewed())))
	}
}

// TestEveryPieceOfALogIsAStream holds for clients that connect and disconnect at
// any instant.
func TestEveryPieceOfALogIsAStream(t *testing.T) {
	log := raw(closed())
	for from := range log {
		for to := from; to <= len(log); to += 3 {
			piece := log[from:to]
			if found := order.Stream(piece, nil); len(found) > 0 {
				t.Fatalf("from %d to %d:\n%s", from, to, order.Format(found, piece))
			}
			if found := order.Within(piece, log); len(found) > 0 {
				t.Fatalf("from %d to %d:\n%s", from, to, order.Format(found, piece))
			}
		}
	}
}

// change is one thing that goes wrong, and the rule that it breaks.
type change struct {
	name string
	rule order.Rule
	to   func([]obj) []obj
}

func find(log []obj, id string) int {
	i := slices.IndexFunc(log, func(e obj) bool { return e["id"] == id })
	if i < 0 {
		panic("there is no " + id)
	}
	return i
}

func set(id string, more obj) func([]obj) []obj {
	return func(log []obj) []obj {
		i := find(log, id)
		log[i] = merge(log[i], more)
		return log
	}
}

func drop(ids ...string) func([]obj) []obj {
	return func(log []obj) []obj {
		return slices.DeleteFunc(log, func(e obj) bool { id, _ := e["id"].(string); return slices.Contains(ids, id) })
	}
}

func insert(after string, events ...obj) func([]obj) []obj {
	return func(log []obj) []obj { return slices.Insert(log, find(log, after)+1, events...) }
}

func move(id, after string) func([]obj) []obj {
	return func(log []obj) []obj {
		i := find(log, id)
		e := log[i]
		log = slices.Delete(log, i, i+1)
		return slices.Insert(log, find(log, after)+1, e)
	}
}

func both(fs ...func([]obj) []obj) func([]obj) []obj {
	return func(log []obj) []obj {
		for _, f := range fs {
			log = f(log)
		}
		return log
	}
}

// ofLogs are changes of a whole log, closed unless another is named.
var ofLogs = []change{
	{"no type", order.Shape, insert("a1", obj{"id": "x"})},
	{"no id", order.Shape, insert("a1", obj{"type": "session.updated"})},
	{"a stored preview", order.Shape, insert("s1", obj{"type": "event_start", "event": obj{"type": "agent.message", "id": "a1"}})},
	{"an id twice", order.Unique, insert("u1", ev("session.updated", "u1"))},
	{"a result that waits", order.Queued, set("cr1", obj{"processed_at": nil})},
	{"a message of the agent that waits", order.Queued, set("u1", obj{"processed_at": nil})},
	{"one that waits in the middle", order.Queued, insert("u1", ev("user.message", "q", obj{"processed_at": nil}))},
	{"a time that is none", order.Time, set("u1", obj{"processed_at": "yesterday"})},
	{"a time in another zone", order.Time, set("u1", obj{"processed_at": "2026-11-16T01:00:00+01:00"})},
	{"a time that goes back", order.Time, set("u1", obj{"processed_at": at(0)})},
	{"running twice", order.Status, insert("trun1", ev("session.status_running", "x"), ev("session.thread_status_running", "y", primary))},
	{"idle twice", order.Status, insert("idle1", stops(99, endTurn)...)},
	{"waiting for more than before", order.Status, insert("idle3", stops(99, waits("t2", "t3"))...)},
	{"rescheduled while idle", order.Status, insert("u1", ev("session.status_rescheduled", "x"), ev("session.thread_status_rescheduled", "y", primary))},
	{"running again after it was rescheduled", order.Status, insert("tresch1", begins(99)...)},
	{"no thread runs", order.Pairing, drop("trun1")},
	{"a thread runs too late", order.Pairing, insert("run1", ev("session.updated", "x"))},
	{"a thread is not told of the second try", order.Pairing, drop("tresch1")},
	{"idle while a thread runs", order.Pairing, drop("tidle1", "trun2")},
	{"thread and session stop for other reasons", order.Pairing, set("tidle1", obj{"stop_reason": obj{"type": "refusal"}})},
	{"a thread that does not end", order.Pairing, drop("tterm")},
	{"a thread of another first", order.Primary, func(log []obj) []obj {
		return slices.Insert(log, 1, ev("session.thread_created", "x", obj{"session_thread_id": "sthr_1"}))
	}},
	{"no usage", order.Usage, drop("usage1")},
	{"usage too early", order.Usage, move("usage1", "e2")},
	{"usage twice", order.Usage, insert("usage1", ev("session.usage", "x"))},
	{"running for nobody", order.Cause, drop("m2")},
	{"the first turn for nobody", order.Cause, drop("m1")},
	{"a model is asked while idle", order.Working, insert("idle1", ev("span.model_request_start", "x"), ev("span.model_request_end", "y", obj{"model_request_start_id": "x"}))},
	{"a request without an end", order.Spans, drop("e2")},
	{"an end without a request", order.Spans, insert("r1", ev("span.model_request_end", "x", obj{"model_request_start_id": "s1"}))},
	{"the end of another request", order.Spans, set("e2", obj{"model_request_start_id": "s1"})},
	{"two requests at once", order.Spans, insert("s1", ev("span.model_request_start", "x"))},
	{"a message outside", order.Spans, move("a2", "e2")},
	{"a result inside", order.Spans, move("r1", "s2")},
	{"a call without a result", order.Tools, drop("r1")},
	{"a result without a call", order.Tools, insert("r1", ev("agent.tool_result", "x", obj{"tool_use_id": "nobody"}))},
	{"two results", order.Tools, insert("r1", ev("agent.tool_result", "x", obj{"tool_use_id": "t1"}))},
	{"a result of another kind", order.Tools, insert("r1", ev("agent.mcp_tool_result", "x", obj{"mcp_tool_use_id": "t1"}))},
	{"a result before its call", order.Tools, move("r1", "trun1")},
	{"a denied call that went well", order.Asked, set("r2", obj{"is_error": false})},
	{"a result before anybody allowed it", order.Asked, both(drop("f2"), set("idle4", waits("t3")), insert("idle4", ev("user.message", "x")))},
	{"confirmed twice", order.Asked, insert("f2", ev("user.tool_confirmation", "x", obj{"tool_use_id": "t3", "result": "allow"}))},
	{"confirmed unasked", order.Asked, insert("e1", ev("user.tool_confirmation", "x", obj{"tool_use_id": "t1", "result": "allow"}))},
	{"confirmed for nobody", order.Asked, insert("e1", ev("user.tool_confirmation", "x", obj{"tool_use_id": "nobody", "result": "allow"}))},
	{"a client answers twice", order.Asked, insert("cr1", ev("user.custom_tool_result", "x", obj{"custom_tool_use_id": "c1"}))},
	{"a client answers for the server", order.Asked, both(insert("e1", ev("user.custom_tool_result", "x", obj{"custom_tool_use_id": "t1"})), drop("r1"))},
	{"one that is open is not listed", order.Action, both(set("idle2", waits("t2", "t3")), set("tidle2", waits("t2", "t3")), drop("cr1", "tidle3", "usage3", "idle3"))},
	{"one that is not open is listed", order.Action, both(set("idle4", waits("t3", "t1")), set("tidle4", waits("t3", "t1")))},
	{"waiting for nothing", order.Action, both(drop("c2"), set("idle7", waits()), set("tidle7", waits()))},
	{"stopped while something is open", order.Action, both(set("idle7", endTurn), set("tidle7", endTurn), drop("i2", "tidle8", "usage8", "idle8"))},
	{"a model is asked after the interrupt", order.Interrupt, insert("r4", ev("span.model_request_start", "x"), ev("span.model_request_end", "y", obj{"model_request_start_id": "x"}))},
	{"an interrupted turn waits for nobody", order.Interrupt, both(set("idle6", obj{"stop_reason": obj{"type": "refusal"}}), set("tidle6", obj{"stop_reason": obj{"type": "refusal"}}))},
	{"an interrupted call is answered", order.Interrupt, insert("i2", ev("user.custom_tool_result", "x", obj{"custom_tool_use_id": "c2"}))},
	{"exhausted and nobody is told", order.Errors, both(set("idle9", endTurn), set("tidle9", endTurn))},
	{"exhausted without an error", order.Errors, drop("x2")},
	{"something after the end", order.Ended, insert("term", ev("user.message", "x"))},
	{"something after it was deleted", order.Ended, insert("term", ev("session.deleted", "x"), ev("session.updated", "y"))},
}

// ofStreams are changes of what a connection saw.
var ofStreams = []change{
	{"queued twice", order.Unique, func(s []obj) []obj { return slices.Insert(s, 1, s[0]) }},
	{"processed twice", order.Unique, func(s []obj) []obj { return slices.Insert(s, 2, ev("user.message", "m1")) }},
	{"queued after it was processed", order.Unique, func(s []obj) []obj { s[0], s[1] = s[1], s[0]; return s }},
	{"an event twice", order.Unique, insert("a2", said("a2", "Done."))},
	{"another event of the same id", order.Unique, insert("e1", ev("session.updated", "m1"))},
	{"a preview with an id", order.Shape, insert("s1", obj{"type": "event_start", "id": "x", "event": obj{"type": "agent.message", "id": "b"}})},
	{"a preview that nobody asked for", order.Previews, insert("s1", obj{"type": "event_start", "event": obj{"type": "agent.tool_use", "id": "b"}})},
	{"a preview starts twice", order.Previews, insert("th1", obj{"type": "event_start", "event": obj{"type": "agent.message", "id": "a1"}})},
	{"a preview starts after its event", order.Previews, insert("a2", obj{"type": "event_start", "event": obj{"type": "agent.message", "id": "a2"}})},
	{"a preview outside of a request", order.Previews, insert("e1", obj{"type": "event_start", "event": obj{"type": "agent.message", "id": "b"}})},
	{"a preview of nothing", order.Previews, insert("s1", obj{"type": "event_start"})},
	{"a piece of what has not started", order.Previews, insert("s1", piece("b", 0, "x"))},
	{"a piece of nothing", order.Previews, insert("th1", obj{"type": "event_delta", "event_id": "a9"}, obj{"type": "event_start", "event": obj{"type": "agent.message", "id": "b"}}, obj{"type": "event_delta", "event_id": "b"})},
	{"a piece after the event", order.Previews, insert("a1", piece("a1", 0, "more"))},
	{"a piece after the request", order.Previews, insert("e1", piece("a9", 0, "more"))},
	{"a piece of a thought", order.Previews, func(s []obj) []obj { return slices.Insert(s, find(s, "th1"), piece("th1", 0, "hm")) }},
	{"pieces that are not the event", order.Previews, set("a1", obj{"content": []obj{{"type": "text", "text": "I want"}}})},
	{"pieces of a block that is not there", order.Previews, func(s []obj) []obj { return slices.Insert(s, find(s, "a1"), piece("a1", 1, "x")) }},
	{"an event of another kind", order.Previews, set("a1", obj{"type": "agent.thinking"})},
	{"an event after its request", order.Previews, insert("s2", said("a9", "never"))},
}

func piece(id string, index int, text string) obj {
	return obj{"type": "event_delta", "event_id": id, "delta": obj{"type": "content_delta", "index": index, "content": obj{"type": "text", "text": text}}}
}

// TestEveryRuleIsHeld breaks one rule at a time. For each rule there is a change
// that no other rule notices, so none can be taken away unseen.
func TestEveryRuleIsHeld(t *testing.T) {
	alone := make(map[order.Rule]bool)
	try := func(c change, found []order.Finding, events []json.RawMessage) {
		kinds := make(map[order.Rule]bool)
		for _, f := range found {
			kinds[f.Rule] = true
		}
		if !kinds[c.rule] {
			t.Errorf("%s: %s was not noticed, but:\n%s", c.name, c.rule, order.Format(found, events))
		}
		if len(kinds) == 1 {
			alone[c.rule] = true
		}
	}
	for _, c := range ofLogs {
		events := raw(c.to(closed()))
		try(c, order.Log(events), events)
	}
	for _, c := range ofStreams {
		events := raw(c.to(previewed()))
		try(c, order.Stream(events, asked), events)
	}
	log := raw(good())
	try(change{"a gap", order.Gap, nil}, order.Within(slices.Concat(log[2:5], log[6:9]), log), log)
	for _, r := range order.Rules() {
		if !alone[r] {
			t.Errorf("no change breaks %s alone", r)
		}
	}
}

func TestGapsAreSeen(t *testing.T) {
	log := raw(good())
	other := slices.Clone(log)
	other[5] = json.RawMessage(strings.Replace(string(log[5]), "I will look.", "I will not look.", 1))
	if string(other[5]) == string(log[5]) {
		t.Fatal("the sixth event is not the message")
	}
	for name, seen := range map[string][]json.RawMessage{
		"a missing event":       slices.Concat(log[:7], log[8:]),
		"two that changed":      {log[0], log[2], log[1]},
		"one of another log":    {log[0], json.RawMessage(`{"type":"user.message","id":"x","processed_at":"2026-11-15T22:00:00Z"}`)},
		"an event that differs": other[4:7],
		"the same again":        {log[0], log[1], log[1]},
	} {
		if found := order.Within(seen, log); len(found) == 0 {
			t.Errorf("%s was not seen", name)
		}
	}
	queued := json.RawMessage(`{"type":"user.message","id":"m2","processed_at":null}`)
	preview := json.RawMessage(`{"type":"event_start","event":{"type":"agent.message","id":"a1"}}`)
	if found := order.Within([]json.RawMessage{log[0], queued, log[1], preview, log[2]}, log); len(found) > 0 {
		t.Errorf("what waits and what is not stored is no gap: %v", found)
	}
}

// TestDamageIsSeldomOverlooked drops, doubles and swaps at random. Few events may
// be missed without breaking a rule.
func TestDamageIsSeldomOverlooked(t *testing.T) {
	harmless := map[string]bool{"th1": true, "a1": true, "a2": true, "a3": true, "x1": true, "u1": true, "sys1": true, "m4": true, "i1": true, "c2": true}
	for i, e := range closed() {
		log := slices.Delete(closed(), i, i+1)
		id, _ := e["id"].(string)
		if len(order.Log(raw(log))) == 0 && !harmless[id] {
			t.Errorf("nobody misses %v", e)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		log := closed()
		i := r.IntN(len(log))
		doubled := slices.Insert(slices.Clone(log), r.IntN(len(log)), log[i])
		if len(order.Log(raw(doubled))) == 0 {
			t.Errorf("nobody sees that %v is there twice", log[i])
		}
	}
}

func FuzzNoEventsBreakTheChecker(f *testing.F) {
	for _, log := range [][]obj{closed(), previewed(), waiting()} {
		var b strings.Builder
		for _, e := range raw(log) {
			b.Write(e)
			b.WriteByte('\n')
		}
		f.Add(b.String(), uint8(0), uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, i, j uint8) {
		var events []json.RawMessage
		for line := range strings.Lines(text) {
			events = append(events, json.RawMessage(line))
		}
		if n := len(events); n > 0 {
			a, b := int(i)%n, int(j)%n
			events[a], events[b] = events[b], events[a]
		}
		for _, found := range [][]order.Finding{order.Log(events), order.Stream(events, asked), order.Within(events, events)} {
			if text := order.Format(found, events); (text == "") != (len(found) == 0) {
				t.Errorf("%d findings are told as %q", len(found), text)
			}
		}
	})
}
