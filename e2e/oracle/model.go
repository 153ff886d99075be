package oracle

import (
	"encoding/json"
	"strings"

	"github.com/dormouse-run/dormouse"
)

func decode(raw json.RawMessage, into any) {
	_ = json.Unmarshal(raw, into) // what cannot be read is empty, and fails the checks that need it
}

// judgeModel: a call with a key is executed once however often it is sent; one
// without is never sent again under the same op. What was seen of a reply
// stands.
func (l *journal) judgeModel(e Evidence, f Findings) {
	for _, why := range e.Calls.Refused {
		f.Add(Diverged, "the model was sent something invalid: %s", why)
	}
	effects, started, done, keyed := e.Calls.Effects, 0, 0, 0
	spans := make(map[dormouse.EventID]bool)
	for _, id := range l.order {
		op := l.ops[id]
		if op.Kind != dormouse.OpModel {
			continue
		}
		if op.span == "" || spans[op.span] {
			f.Add(Diverged, "model call %s has no span of its own", id)
		}
		spans[op.span] = true
		if op.unknown {
			f.Add(Diverged, "the outcome of model call %s was called unknown", id)
		}
		whole := !op.ended.IsZero() && op.end.Outcome == dormouse.OutcomeOK
		if op.Keyed {
			n := e.Calls.Keys[string(id)].Effects
			keyed += n
			if n > 1 || whole && n != 1 {
				f.Add(Double, "model call %s with a key was executed %d times", id, n)
			}
			continue
		}
		started++
		if whole {
			done++
		}
	}
	if n := effects - keyed; n > started {
		f.Add(Double, "%d model calls were executed, the log knows %d", n, started)
	} else if n < done {
		f.Add(Diverged, "%d model calls were executed, the log says that %d went well", n, done)
	}
	for key, c := range e.Calls.Keys {
		if c.Effects > 0 && l.ops[dormouse.OpID(key)] == nil {
			f.Add(Diverged, "model call %s was executed and the log knows no such op", key)
		}
	}
	l.judgeTexts(e, f)
}

// judgeTexts: the text that a follower saw of a reply is part of the reply in
// the log.
func (l *journal) judgeTexts(e Evidence, f Findings) {
	for id, seen := range e.Texts {
		op := l.ops[id]
		if op == nil || op.ended.IsZero() {
			continue
		}
		kept := l.messages[op.end.Result]
		if op.end.Partial != "" {
			kept = l.messages[op.end.Partial]
		}
		if !e.Relayed {
			seen = []string{strings.Join(seen, "")}
		}
		rest := kept
		for _, piece := range seen {
			_, after, found := strings.Cut(rest, piece)
			if !found {
				f.Add(Lost, "of model call %s a follower saw %q, which is not where it was in what the log keeps: %q", id, piece, kept)
				break
			}
			rest = after
		}
	}
}
