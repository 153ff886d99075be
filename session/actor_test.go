package session_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

const bash = `{"tool":"bash","input":{"command":%q}}`

func script(commands ...string) string {
	steps := make([]string, 0, len(commands)+1)
	for _, c := range commands {
		steps = append(steps, fmt.Sprintf(bash, c))
	}
	return "go SCRIPT[" + strings.Join(append(steps, `{"text":"done"}`), ",") + "]"
}

func TestABurstOfPromptsRunsFirstInFirstOut(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		for i := range 5 {
			h.mustPrompt(fmt.Sprint("p", i), fmt.Sprintf(`SCRIPT[{"text":"answer %d","delay_ms":100}]`, i))
		}
		settle(time.Minute)
		if diff := cmp.Diff([]string{"answer 0", "answer 1", "answer 2", "answer 3", "answer 4"}, h.texts()); diff != "" {
			t.Error(diff)
		}
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusIdle); n != 5 {
			t.Errorf("%d idle events, want 5", n)
		}
	})
}

func TestATurnRunsItsToolsAndEnds(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.slow = time.Millisecond // or it could be there before we look
		h.create(dormouse.Created{Warm: true})
		if got := h.phase(); got != dormouse.PhaseCreating {
			t.Errorf("phase %s right after create", got)
		}
		settle(time.Second)
		if got := h.phase(); got != dormouse.PhaseReady {
			t.Errorf("phase %s after a second", got)
		}
		h.mustPrompt("p", script("effect a", "effect b"))
		settle(time.Second)
		if h.boxes.effect("a") != 1 || h.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", h.boxes.effect("a"), h.boxes.effect("b"))
		}
		h.checked()
	})
}

func TestOneOfThoseWhoSendTheSamePromptIsToldThatItIsNew(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		settle(time.Second)
		h.store.set(func(store.Batch) (error, error) { return dormouse.ErrFull, nil })
		if again, err := h.queue("p"); again || !errors.Is(err, dormouse.ErrFull) {
			t.Errorf("a prompt that could not be recorded: again %v, %v", again, err)
		}
		h.store.set(nil)
		var fresh atomic.Int64
		var all sync.WaitGroup
		for range 100 { // some of them in one batch
			all.Go(func() {
				again, err := h.queue("p")
				if err != nil {
					t.Error(err)
				}
				if !again {
					fresh.Add(1)
				}
			})
		}
		all.Wait()
		if n := fresh.Load(); n != 1 {
			t.Errorf("%d were told that it is new", n)
		}
	})
}

func TestTheSameClientIDIsOnePrompt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		for range 100 {
			h.mustPrompt("p", "hello")
		}
		settle(time.Second)
		h.mustPrompt("p", "hello")
		if err := h.prompt("p", "another"); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("another body: %v", err)
		}
		if err := h.do(law.OpenThread{Thread: "sthr_second"}); err != nil {
			t.Fatal(err)
		}
		elsewhere := h.asks("p", "hello")
		elsewhere.Thread = "sthr_second"
		if err := h.do(elsewhere); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("another thread: %v", err)
		}
		settle(time.Second)
		if n := countType(h.checked(), dormouse.UserMessage); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestACommandThatOutlivesTheServerIsNotRepeated(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1m; effect b"))
		settle(10 * time.Second)
		h.crash()
		settle(5 * time.Second)
		h.crash()
		settle(2 * time.Minute)
		if h.boxes.effect("a") != 1 || h.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", h.boxes.effect("a"), h.boxes.effect("b"))
		}
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 2 {
			t.Errorf("%d reschedules", n)
		}
		if h.phase() != dormouse.PhaseReady {
			t.Errorf("phase %s", h.phase())
		}
	})
}

func TestSixCrashesAreFiveReschedulesThenAnErrorThenTheNextPromptRuns(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("sleep 10h"))
		h.mustPrompt("next", `SCRIPT[{"text":"still here"}]`)
		for range 6 {
			settle(10 * time.Second)
			h.crash()
		}
		settle(time.Minute)
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 5 {
			t.Errorf("%d reschedules, want 5", n)
		}
		if n := countType(events, dormouse.SessionError); n != 1 {
			t.Errorf("%d errors, want 1", n)
		}
		if diff := cmp.Diff([]string{"still here"}, h.texts()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestACleanCloseGivesTheAttemptBack(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 10m"))
		for range 10 {
			settle(10 * time.Second)
			h.close()
			h.open()
		}
		settle(time.Hour)
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 0 {
			t.Errorf("%d reschedules", n)
		}
		if h.boxes.effect("a") != 1 || len(h.texts()) != 1 {
			t.Errorf("effects a=%d, said %v", h.boxes.effect("a"), h.texts())
		}
	})
}

func TestAnInterruptEndsTheTurnAndTheCommand(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1h; effect late"))
		h.mustPrompt("q", "never asked")
		settle(time.Second)
		if err := h.do(law.Interrupt{ID: "sevt_stop", Flush: true}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if h.phase() != dormouse.PhaseReady {
			t.Errorf("phase %s", h.phase())
		}
		state, err := h.live.Peek(t.Context(), h.id)
		if err != nil || len(state.Ops) != 0 {
			t.Errorf("open ops %v, %v", state.Ops, err)
		}
		settle(2 * time.Hour)
		if h.boxes.effect("late") != 0 {
			t.Error("the command went on")
		}
		events := h.checked()
		if countType(events, dormouse.UserMessage) != 1 || countType(events, dormouse.PromptCancelled) != 1 {
			t.Error("the queued prompt was not cancelled")
		}
		n := len(events)
		if err := h.do(law.Interrupt{ID: "sevt_again"}); err != nil {
			t.Fatal(err)
		}
		if got := len(h.log()); got != n {
			t.Errorf("interrupting an idle session added %d events", got-n)
		}
	})
}

func TestACustomToolWaitsAcrossACrashAndIsAnsweredOnce(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: dormouse.AgentConfig{
			Name: "a", Model: "scripted", Tools: []dormouse.ToolConfig{{Name: "bash", Permission: dormouse.PermissionAsk}},
			CustomTools: []dormouse.CustomTool{{Name: "lookup"}},
		}})
		h.mustPrompt("p", `SCRIPT[{"tools":[{"name":"lookup","input":{}},{"name":"bash","input":{"command":"effect a"}}]},{"text":"done"}]`)
		settle(time.Second)
		if h.phase() != dormouse.PhaseWaiting {
			t.Fatalf("phase %s", h.phase())
		}
		h.crash()
		settle(time.Minute)
		if n := h.count(dormouse.SessionStatusRescheduled); n != 0 {
			t.Errorf("a blocked turn has no attempt to lose, %d reschedules", n)
		}
		custom, ask := h.use(dormouse.AgentCustomToolUse), h.use(dormouse.AgentToolUse)
		answer := law.Answer{ID: "sevt_1", Use: custom, Content: []dormouse.Block{dormouse.Text("42")}}
		if err := h.do(answer); err != nil {
			t.Fatal(err)
		}
		if err := h.do(answer); err != nil {
			t.Errorf("the same answer again: %v", err)
		}
		other := answer
		other.Content = []dormouse.Block{dormouse.Text("43")}
		if err := h.do(other); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("another answer under the same id: %v", err)
		}
		other.ID = "sevt_other"
		if err := h.do(other); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("second answer: %v", err)
		}
		if h.phase() != dormouse.PhaseWaiting || h.boxes.effect("a") != 0 {
			t.Errorf("phase %s, effects %d before the permission", h.phase(), h.boxes.effect("a"))
		}
		if err := h.do(law.Answer{ID: "sevt_2", Use: ask, Allow: true}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if h.phase() != dormouse.PhaseReady || h.boxes.effect("a") != 1 {
			t.Errorf("phase %s, effects %d", h.phase(), h.boxes.effect("a"))
		}
		h.checked()
	})
}

func TestADeadSandboxMakesItsCommandUnknownAndTheTurnGoesOn(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1h", "effect b"))
		settle(time.Second)
		h.boxes.kill(1)
		settle(time.Minute)
		events := h.checked()
		if n := countType(events, dormouse.OpUnknown); n != 1 {
			t.Errorf("%d unknown ops", n)
		}
		if h.boxes.effect("a") != 1 || h.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", h.boxes.effect("a"), h.boxes.effect("b"))
		}
		if h.boxes.created != 2 {
			t.Errorf("%d sandboxes", h.boxes.created)
		}
	})
}

func TestASandboxThatDiesWithTheServerMakesItsCommandUnknown(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1h"))
		settle(time.Second)
		h.boxes.kill(1)
		h.crash()
		settle(time.Minute)
		if n := countType(h.checked(), dormouse.OpUnknown); n != 1 || h.boxes.effect("a") != 1 {
			t.Errorf("%d unknown ops, %d effects", n, h.boxes.effect("a"))
		}
	})
}

func TestWhatWasSeenOfAReplyStandsOnce(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"text":"one two three four five six seven eight","chunks":8,"chunk_delay_ms":1000}]`)
		settle(3500 * time.Millisecond)
		h.crash()
		settle(time.Minute)
		events := h.checked()
		texts := h.texts()
		if len(texts) != 2 || !strings.HasPrefix(texts[0], "one") || strings.Contains(texts[0], "eight") {
			t.Errorf("said %q\n%s", texts, dump(events))
		}
		if countType(events, dormouse.SpanModelRequestStart) != 2 || countType(events, dormouse.SpanModelRequestEnd) != 2 {
			t.Error("the lost call and its retry should both be seen")
		}
	})
}

func TestAnOverloadedModelIsTriedAgainLater(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"text":"at last","error":529,"times":3}]`)
		settle(time.Minute)
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 3 {
			t.Errorf("%d reschedules", n)
		}
		if diff := cmp.Diff([]string{"at last"}, h.texts()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAModelThatNeverAnswersExhaustsItsAttempts(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"text":"never","error":529}]`)
		settle(10 * time.Minute)
		if h.phase() != dormouse.PhaseError {
			t.Fatalf("phase %s", h.phase())
		}
		if n := h.count(dormouse.SessionStatusRescheduled); n != 5 {
			t.Errorf("%d reschedules", n)
		}
		h.mustPrompt("q", "hello")
		settle(time.Second)
		if h.phase() != dormouse.PhaseReady {
			t.Errorf("phase %s after the next prompt", h.phase())
		}
		h.checked()
	})
}

func TestRecoveryAskLeavesTheDecisionToAPerson(t *testing.T) {
	for _, continues := range []bool{false, true} {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Recovery: dormouse.RecoverAsk})
			h.mustPrompt("p", script("effect a; sleep 1m", "effect b"))
			settle(time.Second)
			h.crash()
			settle(time.Hour)
			if h.phase() != dormouse.PhaseInterrupted {
				t.Fatalf("phase %s", h.phase())
			}
			verb, want := law.Verb(law.Retry{}), 1
			if continues {
				verb, want = law.Continue{}, 0
			}
			if err := h.do(verb); err != nil {
				t.Fatal(err)
			}
			settle(time.Minute)
			if h.phase() != dormouse.PhaseReady || h.boxes.effect("b") != want || h.boxes.effect("a") != 1 {
				t.Errorf("phase %s, effects a=%d b=%d", h.phase(), h.boxes.effect("a"), h.boxes.effect("b"))
			}
			h.checked()
		})
	}
}

func TestAFullDiskRefusesPromptsAndBurnsNoAttempt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 10s", "effect b"))
		settle(time.Second)
		h.store.set(func(store.Batch) (error, error) { return dormouse.ErrFull, nil })
		if err := h.prompt("q", "hello"); !errors.Is(err, dormouse.ErrFull) {
			t.Errorf("prompt on a full disk: %v", err)
		}
		settle(time.Minute) // some 240 tries
		h.store.set(nil)
		settle(time.Minute)
		h.mustPrompt("q", "hello")
		settle(time.Second)
		events := h.checked()
		if countType(events, dormouse.SessionStatusRescheduled) != 0 || h.boxes.effect("a") != 1 || h.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", h.boxes.effect("a"), h.boxes.effect("b"))
		}
		if countType(events, dormouse.UserMessage) != 2 {
			t.Error("the prompt after the disk had room did not run")
		}
	})
}

func TestBlobsThatCannotBeReachedHoldUpWhatIsLargeAndBurnNoAttempt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		large := strings.Repeat("large ", 1<<14*3/4) // more than a row takes
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 10s", "effect b"))
		h.mustPrompt("q", large)
		settle(time.Second)
		h.blobs.fail(dormouse.ErrUnavailable)
		if err := h.prompt("r", "again "+large); !errors.Is(err, dormouse.ErrUnavailable) {
			t.Errorf("prompt without blobs: %v", err)
		}
		settle(time.Minute) // some 240 tries
		h.blobs.fail(nil)
		settle(time.Minute)
		events := h.checked()
		if countType(events, dormouse.SessionStatusRescheduled) != 0 || h.boxes.effect("a") != 1 || h.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", h.boxes.effect("a"), h.boxes.effect("b"))
		}
		if n := countType(events, dormouse.UserMessage); n != 2 {
			t.Errorf("%d messages, want the two that were accepted", n)
		}
		if n := countType(events, dormouse.AttemptStarted); n != 2 {
			t.Errorf("%d attempts, want one for each", n)
		}
	})
}

func TestAnAppendOfUnknownOutcomeDropsTheActorWhichReloads(t *testing.T) {
	for _, landed := range []bool{true, false} {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{})
			settle(time.Second)
			first := true
			h.store.set(func(b store.Batch) (error, error) {
				if !first || len(b.Events) == 0 {
					return nil, nil
				}
				first = false
				if landed {
					return nil, dormouse.ErrUnknownOutcome
				}
				return dormouse.ErrUnknownOutcome, nil
			})
			h.mustPrompt("p", "hello")
			h.mustPrompt("p", "hello") // the same id: whichever it was, it is one prompt
			settle(time.Minute)
			if n := countType(h.checked(), dormouse.UserMessage); n != 1 {
				t.Errorf("landed %v: %d messages", landed, n)
			}
		})
	}
}

func TestALargeBodyRestsInTheBlobStoreAndComesBack(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		big := strings.Repeat("ä", 100_000)
		h.mustPrompt("p", big+` SCRIPT[{"tool":"bash","input":{"command":"print"}},{"text":"ok"}]`)
		h.mustPrompt("q", big)
		settle(time.Second)
		h.crash()
		settle(time.Second)
		events := h.checked()
		if len(h.blobs.m) < 3 {
			t.Errorf("%d blobs", len(h.blobs.m))
		}
		for _, e := range events {
			if e.Type == dormouse.UserMessage && !strings.Contains(string(e.Payload), big) {
				t.Error("the body did not come back whole")
			}
		}
	})
}

func TestAnIdleActorIsDroppedAndBootLoadsOnlyWhatIsDue(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", "hello")
		settle(time.Hour)
		if n := h.live.Loaded(); n != 0 {
			t.Errorf("%d actors loaded after an idle hour", n)
		}
		h.close()
		h.open()
		settle(time.Minute)
		if n := h.live.Loaded(); n != 0 {
			t.Errorf("boot loaded %d sessions that want nothing", n)
		}
		before := len(h.log())
		h.mustPrompt("q", "again")
		settle(time.Second)
		if len(h.checked()) <= before {
			t.Error("nothing happened on demand")
		}
	})
}

func TestAnIdleSandboxSleepsAndAPromptWakesIt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true, SleepAfter: 5 * time.Minute})
		settle(4 * time.Minute)
		if h.phase() != dormouse.PhaseReady {
			t.Fatalf("phase %s", h.phase())
		}
		settle(2 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated {
			t.Fatalf("phase %s after the idle time", h.phase())
		}
		h.mustPrompt("p", script("effect a"))
		settle(time.Second)
		if h.boxes.effect("a") != 1 || h.boxes.created != 2 {
			t.Errorf("effects %d, sandboxes %d", h.boxes.effect("a"), h.boxes.created)
		}
		h.checked()
	})
}

func TestTerminationSticks(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1h; effect late"))
		settle(time.Second)
		for range 2 {
			if err := h.do(law.Terminate{Reason: "enough"}); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Minute)
		if err := h.prompt("q", "hello"); !errors.Is(err, dormouse.ErrTerminated) {
			t.Errorf("prompt: %v", err)
		}
		h.crash()
		settle(3 * time.Hour)
		events := h.checked()
		if n := countType(events, dormouse.SessionStatusTerminated); n != 1 || h.boxes.effect("late") != 0 {
			t.Errorf("%d terminated events, %d late effects", n, h.boxes.effect("late"))
		}
	})
}

func TestASandboxThatCannotStartIsShownAndRetryMendsIt(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.setBroken(errors.New("no room for a sandbox"))
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		if h.phase() != dormouse.PhaseError {
			t.Fatalf("phase %s", h.phase())
		}
		h.mustPrompt("p", script("effect a"))
		settle(2 * time.Second)
		h.boxes.setBroken(nil)
		settle(time.Minute)
		if h.phase() != dormouse.PhaseReady || h.boxes.effect("a") != 1 {
			t.Errorf("phase %s, effects %d", h.phase(), h.boxes.effect("a"))
		}
		h.checked()
	})
}

func TestAProviderCannotMakePeopleWaitForADay(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"text":"at last","error":429,"retry_after_ms":86400000,"times":1}]`)
		settle(11 * time.Minute)
		if diff := cmp.Diff([]string{"at last"}, h.texts()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestASandboxThatFallsSilentIsReachedAnew(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.mu.Lock()
		h.boxes.mute = 1
		h.boxes.mu.Unlock()
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a"))
		settle(5 * time.Minute)
		if h.boxes.effect("a") != 1 || h.phase() != dormouse.PhaseReady {
			t.Errorf("effects %d, phase %s", h.boxes.effect("a"), h.phase())
		}
		h.checked()
	})
}
