package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/harness/wire"
)

// TestB33: whatever a provider does to one call, the turn is tried again, what
// was seen of the call stands once, and people see it.
func TestB33ModelThatFailsOnceIsAskedAgain(t *testing.T) {
	t.Parallel()
	const text = "a sentence of a few words"
	w := newWorld(t, func(s *rig.Server) { s.Flags = append(s.Flags, "--model-timeout", "1s") })
	for _, c := range []struct {
		name  string
		fault rig.Step
		error string // in session.error
	}{
		{"429 with a time to come back", rig.Step{"error": 429, "retry_after_ms": 300}, "model_rate_limited_error"},
		{"429", rig.Step{"error": 429}, "model_rate_limited_error"},
		{"500", rig.Step{"error": 500}, "model_request_failed_error"},
		{"529", rig.Step{"error": 529}, "model_overloaded_error"},
		{"no first byte", rig.Step{"hang": true}, "model_request_failed_error"},
		{"connection lost before the first byte", rig.Step{"cut": 0}, "model_request_failed_error"},
		{"connection lost in the middle", rig.Step{"cut": 2}, "model_request_failed_error"},
		{"silence in the middle", rig.Step{"spoil": "stalled"}, "model_request_failed_error"},
		{"truncated stream", rig.Step{"spoil": "truncated"}, "model_request_failed_error"},
		{"malformed event", rig.Step{"spoil": "malformed"}, "model_request_failed_error"},
		{"event sent twice", rig.Step{"spoil": "duplicate"}, "model_request_failed_error"},
		{"event before its time", rig.Step{"spoil": "disordered"}, "model_request_failed_error"},
		{"line of 100 MiB", rig.Step{"spoil": "endless"}, "model_request_failed_error"},
		{"block without an end", rig.Step{"spoil": "unfinished"}, "model_request_failed_error"},
		{"no final usage", rig.Step{"spoil": "uncounted"}, "model_request_failed_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := w.on(t).create(nil)
			says := rig.Step{"text": text, "chunks": 4}
			acts := rig.Bash(a.marked("true"))
			for _, step := range []rig.Step{acts, says} {
				maps.Copy(step, c.fault)
				step["times"] = 1
			}
			a.send("one", a.script(acts, says))
			a.rests()
			log := a.log()
			errs := only(log, dormouse.SessionError)
			if len(errs) != 2 || len(only(log, dormouse.SessionStatusRescheduled)) != 2 {
				t.Errorf("one call with a tool and one with a text failed once each, and people were shown %s", types(errs))
			}
			for _, e := range errs {
				if !strings.Contains(string(e.Payload), c.error) {
					t.Errorf("people were shown %s, want %s", e.Payload, c.error)
				}
			}
			said := only(log, dormouse.AgentMessage)
			if len(said) == 0 || words(said[len(said)-1]) != text || a.effects("end") == 0 {
				t.Errorf("said were %s", types(said))
			}
			for _, m := range said {
				if !strings.HasPrefix(text, words(m)) {
					t.Errorf("said was %q, which the model never said", words(m))
				}
			}
			if spans := len(only(log, dormouse.SpanModelRequestEnd)); spans != 4 {
				t.Errorf("%d model calls are shown with their cost, want all 4", spans)
			}
		})
	}
}

// TestB33: a provider that cannot be reached at all, for a while and for good.
func TestB33ModelThatCannotBeReachedIsWaitedForAndThenGivenUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		url  func(*wire.Wire) string
		back bool
	}{
		{"refused for a while", func(l *wire.Wire) string { return "http://" + l.Addr() }, true},
		{"refused for good", func(l *wire.Wire) string { return "http://" + l.Addr() }, false},
		{"not the certificate it should have", func(l *wire.Wire) string { return "https://" + l.Addr() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var line *wire.Wire
			w := newWorld(t, func(s *rig.Server) {
				var err error
				line, err = wire.New("tcp", strings.TrimPrefix(s.Model, "http://"))
				must(t, err)
				t.Cleanup(line.Close)
				s.Model = c.url(line)
			})
			a := w.create(cold)
			if strings.HasPrefix(c.url(line), "http:") {
				line.Refuse()
			}
			a.send("one", a.script(rig.Say("at last")))
			a.sees(dormouse.SessionStatusRescheduled, 2)
			a.send("two", a.script(rig.Say("and the next"))) // prompts are taken meanwhile
			if c.back {
				must(t, line.Heal())
				a.rests()
				if said := only(a.log(), dormouse.AgentMessage); len(said) != 2 || words(said[0]) != "at last" {
					t.Errorf("said were %s", types(said))
				}
				return
			}
			a.sees(dormouse.TurnEnded, 1)
			a.MayCancel()
			must(t, a.Command(w.ctx, "interrupt", options{"flush_queue": true}))
			a.within(settlesWithin)
			if n := len(only(a.log(), dormouse.SessionError)); n < 6 {
				t.Errorf("people were shown %d times, want for each attempt", n)
			}
		})
	}
}
