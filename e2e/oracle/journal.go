package oracle

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// journal is the log laid out by op and by prompt.
type journal struct {
	ops       map[dormouse.OpID]*entry
	order     []dormouse.OpID
	uses      map[dormouse.EventID]dormouse.ToolUse
	custom    map[dormouse.EventID]bool
	confirmed map[dormouse.EventID]confirmation
	results   map[dormouse.EventID]result
	messages  map[dormouse.EventID]string
	prompts   map[dormouse.EventID]*prompt
	questions map[dormouse.EventID]*question
	wakeups   map[dormouse.WakeupID]*wakeup
	children  map[dormouse.SessionID]*child
	commands  map[dormouse.EventID]*command
	boxes     boxes
	born      birth
	ended     int // how often the session was terminated
}

// entry is one op as the log has it.
type entry struct {
	dormouse.Op
	span    dormouse.EventID
	started time.Time
	ended   time.Time // zero while it is open
	unknown bool
	end     dormouse.OpEnd
}

type confirmation struct {
	allowed bool
	at      time.Time
}

type result struct {
	byPeople bool
	text     string
}

type question struct {
	answer    string
	answered  int
	expires   time.Time
	expiredAt time.Time // zero if it did not
}

type wakeup struct {
	dormouse.Wakeup
	fired []dormouse.WakeupFact
}

// child is one that the session asked for.
type child struct {
	dormouse.Spawned
	started int
	ended   int
	endedAt time.Time
}

// birth is what a session was made of.
type birth struct {
	dormouse.Created
	at time.Time
}

type prompt struct {
	queued, taken, completed, cancelled int
	text                                string
	turns                               int // not counting those that a person asked for again
}

func read(log []dormouse.Event) *journal {
	l := &journal{
		ops: make(map[dormouse.OpID]*entry), uses: make(map[dormouse.EventID]dormouse.ToolUse),
		custom: make(map[dormouse.EventID]bool), confirmed: make(map[dormouse.EventID]confirmation),
		results: make(map[dormouse.EventID]result), messages: make(map[dormouse.EventID]string),
		prompts: make(map[dormouse.EventID]*prompt), questions: make(map[dormouse.EventID]*question),
		wakeups: make(map[dormouse.WakeupID]*wakeup), children: make(map[dormouse.SessionID]*child),
		commands: make(map[dormouse.EventID]*command),
	}
	for _, e := range log {
		l.see(e)
	}
	return l
}

func (l *journal) see(e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // the oracle of the session package reads the others
	case dormouse.OpStarted:
		p := rig.Decode[dormouse.OpFact](e)
		l.ops[p.Op.ID] = &entry{Op: p.Op, span: p.Span, started: e.Time}
		l.order = append(l.order, p.Op.ID)
	case dormouse.OpFinished, dormouse.OpUnknown:
		p := rig.Decode[dormouse.OpEnd](e)
		if op := l.ops[p.Op]; op != nil {
			op.ended, op.end, op.unknown = e.Time, p, e.Type == dormouse.OpUnknown
		}
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		l.uses[e.ID] = rig.Decode[dormouse.ToolUse](e)
		l.custom[e.ID] = e.Type == dormouse.AgentCustomToolUse
	case dormouse.UserToolConfirmation:
		p := rig.Decode[dormouse.ToolConfirmation](e)
		l.confirmed[p.Use] = confirmation{allowed: p.Result == "allow", at: e.Time}
	case dormouse.AgentToolResult:
		p := rig.Decode[dormouse.ToolResult](e)
		l.results[p.Use] = result{text: text(p.Content)}
	case dormouse.UserCustomToolResult:
		p := rig.Decode[dormouse.CustomToolResult](e)
		l.results[p.Use] = result{byPeople: true, text: text(p.Content)}
	case dormouse.AgentMessage:
		l.messages[e.ID] = text(rig.Decode[dormouse.Message](e).Content)
	case dormouse.PromptQueued:
		q := l.prompt(e.ID)
		q.queued++
		q.text = text(rig.Decode[dormouse.PromptBody](e).Content)
	case dormouse.UserMessage:
		l.prompt(e.ID).taken++
	case dormouse.TurnStarted:
		p := rig.Decode[dormouse.TurnFact](e)
		for _, id := range p.Prompts {
			if p.RetryOf == "" {
				l.prompt(id).turns++
			}
		}
	case dormouse.PromptCompleted:
		for _, id := range rig.Decode[dormouse.Prompts](e).Prompts {
			l.prompt(id).completed++
		}
	case dormouse.PromptCancelled:
		for _, id := range rig.Decode[dormouse.Prompts](e).Prompts {
			l.prompt(id).cancelled++
		}
	default:
		l.seeErrand(e)
	}
}

// seeErrand reads what a session does beside its turns.
func (l *journal) seeErrand(e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // the others were read, or say nothing by themselves
	case dormouse.SessionCreated:
		l.born = birth{rig.Decode[dormouse.Created](e), e.Time}
	case dormouse.SessionTerminated:
		l.ended++
	case dormouse.QuestionAsked:
		p := rig.Decode[dormouse.Question](e)
		l.questions[p.Use] = &question{expires: p.Expires}
	case dormouse.QuestionAnswered:
		p := rig.Decode[dormouse.Question](e)
		if q := l.questions[p.Use]; q != nil {
			q.answered, q.answer = q.answered+1, text(p.Content)
		}
	case dormouse.QuestionExpired:
		if q := l.questions[rig.Decode[dormouse.Question](e).Use]; q != nil {
			q.expiredAt = e.Time
		}
	case dormouse.WakeupScheduled:
		p := rig.Decode[dormouse.Wakeup](e)
		l.wakeups[p.ID] = &wakeup{Wakeup: p}
	case dormouse.WakeupFired:
		p := rig.Decode[dormouse.WakeupFact](e)
		if w := l.wakeups[p.ID]; w != nil {
			w.fired = append(w.fired, p)
		}
	case dormouse.ChildSpawned:
		p := rig.Decode[dormouse.Spawned](e)
		l.children[p.Child.Session] = &child{Spawned: p}
	case dormouse.ChildStarted:
		if c := l.children[rig.Decode[dormouse.ChildFact](e).Child]; c != nil {
			c.started++
		}
	case dormouse.ChildEnded:
		if c := l.children[rig.Decode[dormouse.ChildFact](e).Child]; c != nil {
			c.ended, c.endedAt = c.ended+1, e.Time
		}
	default:
		l.seeCommand(e)
		l.boxes.see(e)
	}
}

func (l *journal) prompt(id dormouse.EventID) *prompt {
	if l.prompts[id] == nil {
		l.prompts[id] = new(prompt)
	}
	return l.prompts[id]
}

func text(content []dormouse.Block) string {
	var b strings.Builder
	for _, c := range content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// judgePrompts: what was acknowledged is in the log, as it was sent, and runs
// exactly once unless its client asked for it not to.
func (l *journal) judgePrompts(e Evidence, f Findings) {
	for _, a := range e.Acks {
		if q := l.prompts[a.ID]; q != nil && q.queued > 0 && q.text != a.Content {
			f.Add(Lost, "prompt %q is in the log with another body", a.ClientID)
		}
		l.judgePrompt(fmt.Sprintf("prompt %q", a.ClientID), a.ID, a.Cancelled, e, f)
	}
}

// judgePrompt: a prompt that was acknowledged is there and runs exactly once.
func (l *journal) judgePrompt(name string, id dormouse.EventID, mayCancel bool, e Evidence, f Findings) {
	q := l.prompts[id]
	switch {
	case q == nil || q.queued == 0:
		f.Add(Lost, "%s was accepted as %s and is not in the log", name, id)
	case q.queued > 1 || q.taken > 1 || q.turns > 1:
		f.Add(Double, "%s was queued %d times, taken %d times, worked on in %d turns", name, q.queued, q.taken, q.turns)
	case q.completed > 0 && q.taken == 1:
	case q.cancelled == 1 && q.taken == 0 && mayCancel:
	case e.Shown.Turning():
		// Blocked on people: the turn, and what is queued behind it, waits.
	default:
		f.Add(Lost, "%s was taken %d times, completed %d and cancelled %d times", name, q.taken, q.completed, q.cancelled)
	}
}

// judgeCommands: each effect belongs to an op that was recorded before it, comes
// once, and never after the op's end was recorded.
func (l *journal) judgeCommands(e Evidence, f Findings) {
	byOp, byNonce := make(map[string]int), make(map[string]int)
	perOp := make(map[dormouse.OpID]int)
	for _, x := range e.Effects {
		perOp[x.Op]++
		if byOp[string(x.Op)+" "+x.Mark]++; byOp[string(x.Op)+" "+x.Mark] == 2 {
			f.Add(Double, "%s of %s (%s) happened twice", x.Mark, x.Op, x.Nonce)
		}
		if byNonce[x.Nonce+" "+x.Mark]++; byNonce[x.Nonce+" "+x.Mark] == 2 {
			f.Add(Double, "%s of the command %s happened twice", x.Mark, x.Nonce)
		}
		op := l.ops[x.Op]
		if op == nil {
			f.Add(Diverged, "%s of %s (%s) happened and the log knows no such op", x.Mark, x.Op, x.Nonce)
			continue
		}
		if e.before(x.At, op.started) {
			f.Add(Diverged, "%s of %s (%s) happened at %s, before it was recorded at %s", x.Mark, x.Op, x.Nonce, x.At, op.started)
		}
		// A task goes on after its op: that says only that it was started.
		outlives := op.Kind == dormouse.OpTask && !op.unknown && op.end.Outcome == dormouse.OutcomeOK
		if !op.ended.IsZero() && e.before(op.ended, x.At) && !outlives {
			f.Add(Late, "%s of %s (%s) happened at %s, after the log said %q at %s", x.Mark, x.Op, x.Nonce, x.At, op.end.Outcome, op.ended)
		}
		if l.uses[op.Use].Permission == dormouse.PermissionAsk {
			if c := l.confirmed[op.Use]; !c.allowed || e.before(x.At, c.at) {
				f.Add(Diverged, "%s of %s (%s) happened without permission", x.Mark, x.Op, x.Nonce)
			}
		}
	}
	for _, id := range l.order {
		op := l.ops[id]
		if op.Kind != dormouse.OpExec || op.unknown || op.ended.IsZero() || op.end.Outcome != dormouse.OutcomeOK || l.abandoned(op) {
			continue
		}
		if want := strings.Count(l.text(op), "$DORMOUSE_OP"); perOp[id] != want {
			f.Add(e.gone(), "the log says that %s went well, and it left %d of %d effects", id, perOp[id], want)
		}
	}
}

// text is the command that an op runs, as the agent or a person wrote it.
func (l *journal) text(op *entry) string {
	if c := l.commands[op.Use]; c != nil {
		return c.ask.Command
	}
	return string(l.uses[op.Use].Input)
}

// abandoned reports whether the turn of an op ended before the op did. Its
// outcome then says how its process ended and not that all of it was done.
func (l *journal) abandoned(op *entry) bool { return op.end.Result == "" }

// judgeWrites: a file is put in place at most once for each op, whole, and never
// after the op's end was recorded.
func (l *journal) judgeWrites(e Evidence, f Findings) {
	for _, id := range l.order {
		op := l.ops[id]
		if op.Kind == dormouse.OpRead && op.unknown {
			f.Add(Diverged, "%s only reads, and its outcome was called unknown", id)
		}
		if op.Kind != dormouse.OpWrite {
			continue
		}
		var input struct {
			Path string `json:"file_path"`
		}
		decode(l.uses[op.Use].Input, &input)
		w := e.Writes[filepath.Base(input.Path)]
		switch {
		case w.Times > 1:
			f.Add(Double, "%s put %s in place %d times", id, input.Path, w.Times)
		case op.ended.IsZero():
		case w.Times == 1 && e.before(op.ended, w.At):
			f.Add(Late, "%s put %s in place at %s, after the log said %q at %s", id, input.Path, w.At, op.end.Outcome, op.ended)
		case w.Times == 0 && !op.unknown && op.end.Outcome == dormouse.OutcomeOK && !l.abandoned(op):
			f.Add(e.gone(), "the log says that %s went well, and %s was never put in place, or is not there any more", id, input.Path)
		}
	}
}
