package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// asks is a reply that asks people something.
func asks(question string, within time.Duration) rig.Step {
	return rig.Use("question_ask", map[string]any{"question": question, "expires_in_seconds": int(within.Seconds())})
}

// question is what waits for words.
type question struct {
	Use      dormouse.EventID `json:"tool_use_id"`
	Kind     dormouse.OpKind  `json:"kind"`
	Question string           `json:"question"`
	Expires  time.Time        `json:"expires_at"`
}

// asked waits until the session asks, and returns what.
func (a *actor) asked() question {
	a.w.t.Helper()
	a.phase(dormouse.PhaseWaiting)
	var answer struct {
		Questions []question `json:"questions"`
	}
	must(a.w.t, a.Get(a.w.ctx, a.Path("/questions"), &answer))
	if len(answer.Questions) != 1 || answer.Questions[0].Kind != dormouse.OpQuestion {
		a.w.t.Fatalf("what waits is %+v", answer.Questions)
	}
	return answer.Questions[0]
}

// reply answers a question.
func (a *actor) reply(q question, words string) error {
	return a.Command(a.w.ctx, "answers", options{"tool_use_id": q.Use, "answer": words})
}

func TestScenario44QuestionExpiresOnItsStoredTime(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"while the server runs": false, "while the server is down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.create(with("question_ask"))
			a.send("ask", a.script(asks("which one?", 2*time.Second), rig.Say("then as I think")))
			q := a.asked()
			if q.Question != "which one?" || time.Until(q.Expires) > 2*time.Second {
				t.Errorf("asked is %+v", q)
			}
			if down {
				w.kill(func() { must(t, sleep.For(w.ctx, time.Until(q.Expires)+200*time.Millisecond)) })
			} else {
				w.kill(nil) // nor does a restart give it more time
			}
			expired := a.sees(dormouse.QuestionExpired, 1)
			if at := rig.Decode[dormouse.Question](expired).Expires; !at.Equal(q.Expires) || expired.Time.Before(at) {
				t.Errorf("it expired at %s by %s, and was said to at %s", expired.Time, at, q.Expires)
			}
			refused(t, a.reply(q, "too late"), http.StatusConflict, "conflict")
			a.sees(dormouse.TurnEnded, 1)
			log := a.log()
			results := only(log, dormouse.AgentToolResult)
			if len(results) != 1 || !rig.Decode[dormouse.ToolResult](results[0]).IsError || !strings.Contains(words(results[0]), "in time") {
				t.Errorf("the agent was told %s", types(results))
			}
			if said := only(log, dormouse.AgentMessage); len(said) != 1 || words(said[0]) != "then as I think" {
				t.Errorf("the agent said %s", types(said))
			}
		})
	}
}

func TestScenario44TwoPeopleAnswerAtOnceAndOneWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(with("question_ask"))
	for round := range 5 {
		a.send(fmt.Sprint(round), a.script(asks("which one?", time.Minute), rig.Say("thank you")))
		q := a.asked()
		if round == 0 {
			w.kill(nil) // it is still asked after that
		}
		var won []string
		var people sync.WaitGroup
		var mu sync.Mutex
		for _, person := range []string{"ada", "bob"} {
			people.Go(func() {
				words := fmt.Sprintf("%s says %d", person, round)
				err := a.reply(q, words)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, words)
					return
				}
				refused(t, err, http.StatusConflict, "conflict")
			})
		}
		people.Wait()
		if len(won) != 1 {
			t.Fatalf("accepted were %q, want one", won)
		}
		a.answers = append(a.answers, oracle.Answer{Use: q.Use, Content: won[0]})
		a.sees(dormouse.TurnEnded, round+1)
		results := only(a.log(), dormouse.AgentToolResult)
		if got := words(results[len(results)-1]); got != won[0] {
			t.Errorf("the agent was told %q, and %q was accepted", got, won[0])
		}
	}
}
