package scripted_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func request(prompt string) model.Request {
	return model.Request{Model: "scripted", Messages: modeltest.User(prompt), Tools: []model.Tool{modeltest.Bash()}, MaxTokens: 100}
}

func ignore(model.Delta) error { return nil }

func reply(t *testing.T, m model.Model, r model.Request) model.Reply {
	t.Helper()
	got, err := m.Reply(t.Context(), r, ignore)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func failure(t *testing.T, m model.Model, r model.Request) *model.Error {
	t.Helper()
	_, err := m.Reply(t.Context(), r, ignore)
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}

// words says what a reply does, in short.
func words(r model.Reply) []string {
	var out []string
	for _, p := range r.Content {
		out = append(out, p.Text+p.Name+string(p.Input))
	}
	return out
}

func subject(m model.Model, sent func() int) modeltest.Subject {
	hangs, fails := request(`SCRIPT[{"hang":true}]`), request(`SCRIPT[{"error":529,"times":1}]`)
	return modeltest.Subject{
		Model: m,
		Text:  request(`SCRIPT[{"text":"one two three four","chunks":4}]`),
		Tools: request(`SCRIPT[{"text":"first","tools":[{"name":"bash","input":{"command":"a"}},{"name":"bash"}]}]`),
		Hangs: &hangs, Fails: &fails, Sent: sent,
	}
}

func TestModelKeepsThePromisesOfAModel(t *testing.T) {
	for name, keyed := range map[string]bool{"keyed": true, "not keyed": false} {
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, func(*testing.T) modeltest.Subject {
				m := scripted.New(scripted.Options{Keyed: keyed})
				return subject(m, func() int { return m.Calls().Requests })
			})
		})
	}
}

func TestScriptIsPlayedStepByStep(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`go SCRIPT[
		{"text":"look","tool":"bash","input":{"command": "ls"}},
		{"tools":[{"name":"bash","input":{"command":"a"}},{"name":"read","input":{}}]},
		{"text":"that is all"}] please`)
	var got [][]string
	for range 3 {
		a := reply(t, m, r)
		got = append(got, words(a))
		r.Messages = modeltest.Answered(r.Messages, a, "ok")
	}
	want := [][]string{
		{"look", `bash{"command":"ls"}`},
		{`bash{"command":"a"}`, `read{}`},
		{"that is all"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlaceInTheScriptSurvivesAnInterruptedReply(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`SCRIPT[{"tool":"bash"},{"text":"second"},{"text":"third"}]`)
	r.Messages = modeltest.Answered(r.Messages, reply(t, m, r), "ok")
	r.Messages = append(r.Messages,
		model.Message{Role: model.RoleAssistant, Content: []model.Part{{Type: model.PartText, Text: "sec"}}},
		modeltest.User("[dormouse: the reply was interrupted]")[0])
	if diff := cmp.Diff([]string{"second"}, words(reply(t, m, r))); diff != "" {
		t.Error(diff)
	}
}

func TestNewPromptStartsItsOwnScript(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`SCRIPT[{"tool":"bash"},{"tool":"bash"}]`)
	r.Messages = modeltest.Answered(r.Messages, reply(t, m, r), "SCRIPT[not this]")
	last := &r.Messages[2]
	last.Content = append(last.Content, model.Part{Type: model.PartText, Text: `SCRIPT[{"text":"new"}]`})
	if diff := cmp.Diff([]string{"new"}, words(reply(t, m, r))); diff != "" {
		t.Error(diff)
	}
}

func TestToolCallsOfOneSessionNeverShareAnID(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`SCRIPT[{"tool":"bash"},{"tool":"bash"},{"text":"x"}]`)
	for range 2 {
		for range 2 {
			r.Messages = modeltest.Answered(r.Messages, reply(t, m, r), "ok")
		}
		r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Content: reply(t, m, r).Content}, r.Messages[0])
	}
	if err := modeltest.Check(r.Messages); err != nil {
		t.Error(err)
	}
}

func TestEqualRequestsGetEqualReplies(t *testing.T) {
	r := request(`SCRIPT[{"text":"a","tool":"bash"}]`)
	a := reply(t, scripted.New(scripted.Options{}), r)
	b := reply(t, scripted.New(scripted.Options{}), r)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutAScriptThePromptIsRepeated(t *testing.T) {
	m := scripted.New(scripted.Options{})
	if diff := cmp.Diff([]string{"You said: hello there"}, words(reply(t, m, request("hello\nthere")))); diff != "" {
		t.Error(diff)
	}
	r := request(`SCRIPT[{"tool":"bash"}]`)
	r.Messages = modeltest.Answered(r.Messages, reply(t, m, r), "ok")
	if diff := cmp.Diff([]string{"done"}, words(reply(t, m, r))); diff != "" {
		t.Errorf("behind the script: %s", diff)
	}
}

func TestScriptThatCannotBeReadIsRefused(t *testing.T) {
	for _, script := range []string{`SCRIPT[`, `SCRIPT[]`, `SCRIPT[{"txt":"a"}]`, `SCRIPT[{"tool":"bash","input":3}]`, `SCRIPT[{"error":99}]`, `SCRIPT[{"tools":[{}]}]`, `SCRIPT[{"input":{}}]`} {
		m := scripted.New(scripted.Options{})
		if e := failure(t, m, request(script)); e.Kind != model.Rejected {
			t.Errorf("%s: %v", script, e)
		}
		if n := len(m.Calls().Refused); n != 1 {
			t.Errorf("%s: %d refusals are recorded", script, n)
		}
	}
}

func TestErrorStrikesAsOftenAsItSays(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`SCRIPT[{"error":429,"times":2,"retry_after_ms":1500,"text":"at last"}]`)
	for range 2 {
		if e := failure(t, m, r); e.Kind != model.RateLimited || e.RetryAfter != 1500*time.Millisecond {
			t.Errorf("got %v after %v", e, e.RetryAfter)
		}
	}
	if diff := cmp.Diff([]string{"at last"}, words(reply(t, m, r))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(scripted.Count{Requests: 3, Replies: 1, Effects: 1}, m.Calls().Count); diff != "" {
		t.Error(diff)
	}
}

func TestCutHappensOnceAndCostsTwice(t *testing.T) {
	m := scripted.New(scripted.Options{})
	r := request(`SCRIPT[{"text":"abcdef","chunks":3,"cut":2}]`)
	var got string
	_, err := m.Reply(t.Context(), r, func(d model.Delta) error { got += d.Text; return nil })
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.RequestFailed {
		t.Errorf("got %v", err)
	}
	if got != "abcd" {
		t.Errorf("%q was seen", got)
	}
	reply(t, m, r)
	if diff := cmp.Diff(scripted.Count{Requests: 2, Replies: 1, Effects: 2}, m.Calls().Count); diff != "" {
		t.Error(diff)
	}
}

func TestKeyedCallIsExecutedOnceHoweverOftenItIsSent(t *testing.T) {
	m := scripted.New(scripted.Options{Keyed: true})
	r := request(`SCRIPT[{"text":"abcdef","cut":1}]`)
	r.Op = "op_1"
	failure(t, m, r)
	reply(t, m, r)
	reply(t, m, r)
	want := scripted.Count{Requests: 3, Replies: 2, Effects: 1}
	if diff := cmp.Diff(want, m.Calls().Keys["op_1"]); diff != "" {
		t.Error(diff)
	}
	other := request("another question")
	other.Op = "op_1"
	if e := failure(t, m, other); e.Kind != model.Rejected {
		t.Errorf("the key was taken for another request: %v", e)
	}
}

func TestKeyedRequestWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := scripted.New(scripted.Options{Keyed: true})
		r := request(`SCRIPT[{"text":"slow","delay_ms":60000}]`)
		r.Op = "op_1"
		began := time.Now()
		go func() { _, _ = m.Reply(t.Context(), r, ignore) }()
		synctest.Wait()
		reply(t, m, r)
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the second was answered after %v", d)
		}
		if n := m.Calls().Effects; n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestDelaysAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := scripted.New(scripted.Options{})
		began := time.Now()
		var at []time.Duration
		_, err := m.Reply(t.Context(), request(`SCRIPT[{"text":"abc","chunks":3,"delay_ms":1000,"chunk_delay_ms":500}]`), func(model.Delta) error {
			at = append(at, time.Since(began))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second}, at); diff != "" {
			t.Error(diff)
		}
	})
}

func TestReplyWithoutStreamHasNoFragments(t *testing.T) {
	m := scripted.New(scripted.Options{})
	_, err := m.Reply(t.Context(), request(`SCRIPT[{"text":"abc","stream":false}]`), func(d model.Delta) error {
		t.Errorf("fragment %q", d.Text)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHangingCallIsNotAnEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := scripted.New(scripted.Options{Keyed: true})
		r := request(`SCRIPT[{"hang":true,"times":1,"text":"back"}]`)
		r.Op = "op_1"
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, dormouse.ErrClosing)
		defer cancel()
		if _, err := m.Reply(ctx, r, ignore); !errors.Is(err, dormouse.ErrClosing) {
			t.Errorf("got %v", err)
		}
		if n := m.Calls().Effects; n != 0 {
			t.Errorf("%d effects", n)
		}
		if diff := cmp.Diff([]string{"back"}, words(reply(t, m, r))); diff != "" {
			t.Error(diff)
		}
	})
}
