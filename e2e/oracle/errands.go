package oracle

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// judgeAnswers: every answer of a person was taken once, and no other answer was.
func (l *journal) judgeAnswers(e Evidence, f Findings) {
	for _, a := range e.Answer {
		c, isConfirmation := l.confirmed[a.Use]
		r := l.results[a.Use]
		q := l.questions[a.Use]
		switch {
		case q != nil:
			if q.answered != 1 || q.answer != a.Content || r.text != a.Content {
				f.Add(Lost, "the answer to question %s was accepted and is not in the log", a.Use)
			}
		case l.custom[a.Use] && (!r.byPeople || r.text != a.Content):
			f.Add(Lost, "the answer to %s was accepted and is not in the log", a.Use)
		case !l.custom[a.Use] && (!isConfirmation || c.allowed == a.Deny):
			f.Add(Lost, "the permission for %s was accepted and is not in the log", a.Use)
		}
	}
	answered := make(map[dormouse.EventID]bool)
	for _, a := range e.Answer {
		answered[a.Use] = true
	}
	for use, custom := range l.custom {
		if r, ok := l.results[use]; custom && ok && r.byPeople && !answered[use] {
			f.Add(Diverged, "nobody answered the custom tool call %s, and it has an answer", use)
		}
	}
}

// judgeQuestions checks that a question is answered once or expires once, and expires at
// its time.
func (l *journal) judgeQuestions(f Findings) {
	for use, q := range l.questions {
		switch {
		case q.answered > 1:
			f.Add(Double, "question %s was answered %d times", use, q.answered)
		case q.answered == 1 && !q.expiredAt.IsZero():
			f.Add(Double, "question %s was answered and expired", use)
		case !q.expiredAt.IsZero() && q.expiredAt.Before(q.expires):
			f.Add(Lost, "question %s expired at %s, before %s", use, q.expiredAt, q.expires)
		}
	}
}

// judgeWakeups: what fires once fires once, and what a firing queued runs exactly
// once.
func (l *journal) judgeWakeups(e Evidence, f Findings) {
	for id, w := range l.wakeups {
		if w.Cron == "" && len(w.fired) > 1 {
			f.Add(Double, "wake-up %s fired %d times", id, len(w.fired))
		}
		for _, fact := range w.fired {
			if fact.Prompt == "" {
				f.Add(Lost, "wake-up %s, due at %s, fired without its prompt: %s", id, fact.Due, fact.Reason)
				continue
			}
			l.judgePrompt(fmt.Sprintf("the prompt of wake-up %s, due at %s,", id, fact.Due), fact.Prompt, l.ended > 0, e, f)
		}
	}
}
