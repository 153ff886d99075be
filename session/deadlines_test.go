package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// everyTool enables all there is.
func everyTool() dormouse.AgentConfig {
	a := dormouse.AgentConfig{Name: "agent", Model: "scripted"}
	for _, name := range tool.Builtin().Names() {
		a.Tools = append(a.Tools, dormouse.ToolConfig{Name: name})
	}
	return a
}

// use is a step of a script that calls one tool.
func use(name string, input any) string {
	raw, _ := json.Marshal(input)
	return fmt.Sprintf(`{"tools":[{"name":%q,"input":%s}]}`, name, raw)
}

// says is a prompt whose script takes these steps and ends.
func says(steps ...string) string {
	return "SCRIPT[" + strings.Join(append(steps, `{"text":"done"}`), ",") + "]"
}

// results lists what the agent was told by its tools.
func (h *house) results() []string {
	var out []string
	for _, e := range h.log() {
		var r dormouse.ToolResult
		if e.Type == dormouse.AgentToolResult && json.Unmarshal(e.Payload, &r) == nil {
			for _, b := range r.Content {
				out = append(out, b.Text)
			}
		}
	}
	return out
}

func TestAWakeUpFiresOnceThoughItWasMissedOften(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", says(use("wakeup_schedule", map[string]any{"prompt": `SCRIPT[{"text":"awake"}]`, "cron": "*/10 * * * *"})))
		settle(time.Second)
		h.close()
		settle(3 * time.Hour) // no server runs
		h.open()
		settle(time.Second)
		if n := strings.Count(strings.Join(h.texts(), " "), "awake"); n != 1 {
			t.Errorf("woke %d times after it was missed, want once", n)
		}
		settle(10 * time.Minute)
		if n := strings.Count(strings.Join(h.texts(), " "), "awake"); n != 2 {
			t.Errorf("woke %d times ten minutes later, want twice", n)
		}
		h.checked()
	})
}

func TestTheTwentyFirstWakeUpIsRefusedUntilOneIsCancelled(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		schedule := func(n int) error {
			return h.do(law.Schedule{
				ID: dormouse.WakeupID(fmt.Sprint("wake_", n)), At: time.Now().Add(time.Hour), Content: []dormouse.Block{dormouse.Text("x")},
			})
		}
		for n := range dormouse.MaxWakeups {
			if err := schedule(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := schedule(0); err != nil {
			t.Errorf("the same wake-up again: %v", err)
		}
		if err := schedule(99); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("one too many: %v", err)
		}
		if err := h.do(law.Unschedule{ID: "wake_3"}); err != nil {
			t.Fatal(err)
		}
		if err := schedule(99); err != nil {
			t.Errorf("after one was cancelled: %v", err)
		}
		settle(2 * time.Hour)
		if n := h.count(dormouse.WakeupFired); n != dormouse.MaxWakeups {
			t.Errorf("%d fired, want %d", n, dormouse.MaxWakeups)
		}
		if n := h.count(dormouse.UserMessage); n != dormouse.MaxWakeups {
			t.Errorf("%d prompts ran, want %d", n, dormouse.MaxWakeups)
		}
		h.checked()
	})
}

func TestAQuestionIsAnsweredOnceOrExpires(t *testing.T) {
	ask := says(use("question_ask", map[string]any{"question": "which?"}))
	t.Run("the first answer wins", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Agent: everyTool()})
			h.mustPrompt("p", ask)
			settle(time.Second)
			if h.phase() != dormouse.PhaseWaiting {
				t.Fatalf("phase %s", h.phase())
			}
			h.crash() // a question stays answerable
			asked := h.use(dormouse.AgentToolUse)
			errs := make(chan error)
			for _, who := range []string{"ada", "bob"} {
				go func() {
					errs <- h.live.Do(t.Context(), h.id, dormouse.User(who), law.Answer{
						ID: dormouse.EventID("sevt_" + who), Use: asked, Content: []dormouse.Block{dormouse.Text(who)},
					})
				}()
			}
			one, two := <-errs, <-errs
			if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), dormouse.ErrConflict) {
				t.Errorf("answers: %v and %v", one, two)
			}
			settle(time.Minute)
			if n := h.count(dormouse.QuestionAnswered); n != 1 {
				t.Errorf("answered %d times", n)
			}
			if got := h.texts(); len(got) != 1 || got[0] != "done" {
				t.Errorf("the agent said %q", got)
			}
			h.checked()
		})
	})
	t.Run("a late answer is refused", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Agent: everyTool()})
			h.mustPrompt("p", ask)
			settle(dormouse.QuestionWithin - time.Minute)
			h.close()
			settle(2 * time.Minute) // it expires while no server runs
			h.open()
			settle(time.Second)
			err := h.do(law.Answer{ID: "sevt_late", Use: h.use(dormouse.AgentToolUse), Content: []dormouse.Block{dormouse.Text("a")}})
			if !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("late answer: %v", err)
			}
			if h.count(dormouse.QuestionExpired) != 1 || h.phase() != dormouse.PhaseReady {
				t.Errorf("phase %s, expired %d times", h.phase(), h.count(dormouse.QuestionExpired))
			}
			h.checked()
		})
	})
}

func TestTwoThreadsWorkAtOnceAndCountOnce(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		second := dormouse.ThreadID("sthr_second")
		if err := h.do(law.OpenThread{Thread: second}); err != nil {
			t.Fatal(err)
		}
		for i, thread := range []dormouse.ThreadID{"", second} {
			content := []dormouse.Block{dormouse.Text(`SCRIPT[{"text":"slow","delay_ms":10000}]`)}
			if err := h.do(law.Prompt{
				Thread: thread, ID: dormouse.PromptID(h.id, fmt.Sprint(i)), Body: dormouse.DigestOf(dormouse.Encode(content)), Content: content,
			}); err != nil {
				t.Fatal(err)
			}
		}
		settle(11 * time.Second)
		if got := h.texts(); len(got) != 2 {
			t.Errorf("after eleven seconds the threads said %q", got)
		}
		row, err := h.live.Row(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		if s := row.Metrics.ActiveSeconds; s < 9.9 || s > 10.6 {
			t.Errorf("active for %.1f s, want the ten that passed", s)
		}
		if row.Metrics.Messages != 4 {
			t.Errorf("%d messages, want 4", row.Metrics.Messages)
		}
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusIdle); n != 1 {
			t.Errorf("the session went idle %d times, want once", n)
		}
	})
}

func TestTimeThatNobodyWorkedDoesNotCount(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("sleep 20s"))
		settle(5 * time.Second)
		h.cut()
		settle(time.Hour)
		h.open()
		settle(time.Minute)
		row, err := h.live.Row(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		if s := row.Metrics.ActiveSeconds; s > 60 {
			t.Errorf("active for %.0f s, though the server was away for an hour", s)
		}
		h.checked()
	})
}

func TestADeletedSessionIsGoneWithEverythingItOwned(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		h.mustPrompt("p", script("effect a"))
		settle(time.Second)
		f, err := h.live.Follow(t.Context(), h.id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if _, err := h.live.Row(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the row is still there: %v", err)
		}
		if _, err := h.live.Peek(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the log is still there: %v", err)
		}
		if err := h.prompt("q", "hello"); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("a prompt to what is gone: %v", err)
		}
		if len(h.boxes.removed) != 1 || h.boxes.removed[0] != h.id {
			t.Errorf("removed workspaces: %v", h.boxes.removed)
		}
	})
}

func TestARunnerThatDoesNotAnswerKeepsNobodyFromDeletingItsSession(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "sleep 10m"}}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		h.boxes.deaf = true
		h.crash()
		settle(time.Second) // the command is looked for
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if _, err := h.live.Row(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the row is still there: %v", err)
		}
	})
}

func TestASandboxThatIsSlowToStartKeepsNobodyFromDeletingItsSession(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.deaf = true // nor does one that is made
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if _, err := h.live.Row(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the row is still there: %v", err)
		}
	})
}

func TestARunnerThatDoesNotLetItselfBeFrozenKeepsNobodyFromDeletingItsSession(t *testing.T) {
	asleep(t, func(t *testing.T, h *house, d *sleeping) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.ready = make(chan struct{})
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if s, err := h.live.Peek(t.Context(), h.id); err != nil || s.Sandbox.Phase != law.SandboxStopping {
			t.Fatalf("it is not being frozen: %v, %v", s.Sandbox.Phase, err)
		}
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if _, err := h.live.Row(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("the row is still there: %v", err)
		}
	})
}

func TestAFreezeThatTakesItsTimeIsNotGivenUpWhileItsSessionLives(t *testing.T) {
	asleep(t, func(t *testing.T, h *house, d *sleeping) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.ready = make(chan struct{})
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if err := h.do(law.Describe{Tags: &[]string{"looked at meanwhile"}}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		close(d.ready)
		settle(time.Second)
		if n := countType(h.checked(), dormouse.SandboxStopped); n != 1 || d.given != 0 {
			t.Errorf("freezing was given up %d times, and it stopped %d times", d.given, n)
		}
	})
}

func TestAnArchivedSessionIsHiddenAndOver(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Tenant: "default"})
		h.mustPrompt("p", "find the lost keys")
		settle(time.Second)
		list := func(q session.Query) int {
			q.Tenant, q.Limit = "default", 10
			rows, err := h.live.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			return len(rows)
		}
		if err := h.do(law.Describe{Tags: &[]string{"b", "a", "b"}, Metadata: map[string]*string{"team": new("night")}}); err != nil {
			t.Fatal(err)
		}
		for _, q := range []session.Query{
			{Text: "LOST"}, {Text: "night"}, {Tags: []string{"a", "b"}}, {Metadata: map[string]string{"team": "night"}},
		} {
			if list(q) != 1 {
				t.Errorf("%+v finds nothing", q)
			}
		}
		if err := h.do(law.Archive{}); err != nil {
			t.Fatal(err)
		}
		if err := h.prompt("q", "hello"); !errors.Is(err, dormouse.ErrTerminated) {
			t.Errorf("a prompt to an archived session: %v", err)
		}
		if list(session.Query{}) != 0 || list(session.Query{Archived: true}) != 1 {
			t.Error("an archived session is listed only when asked for")
		}
		h.checked()
	})
}

// A retry that waits for its time must not wait for a clock that was set back.
func TestAClockSetBackStrandsNoTurn(t *testing.T) {
	for name, restart := range map[string]bool{"while it waits": false, "and the server starts anew": true} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{})
				h.mustPrompt("p", `SCRIPT[{"error":529,"retry_after_ms":30000,"times":1},{"text":"done"}]`)
				settle(time.Second)
				if n := h.count(dormouse.SessionStatusRescheduled); n != 1 {
					t.Fatalf("%d reschedules", n)
				}
				h.skew.Store(int64(-24 * time.Hour))
				if restart {
					h.close()
					h.open()
				}
				settle(time.Minute)
				if h.phase() != dormouse.PhaseReady {
					t.Errorf("phase %s, a minute after the clock was set back", h.phase())
				}
				h.checked()
			})
		})
	}
}
