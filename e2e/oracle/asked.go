package oracle

import (
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// command is one that a person asked for, as the log has it.
type command struct {
	ask               dormouse.ExecAsk
	asked             int
	answered, refused int
	answer            dormouse.ExecAnswer
	ending            bool
	seq               uint64 // of the answer
	at                time.Time
}

// seeCommand reads what became of the commands of people.
func (l *journal) seeCommand(e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // the others are not about commands
	case dormouse.ExecAsked:
		c := l.command(e.ID)
		c.ask = rig.Decode[dormouse.ExecAsk](e)
		c.asked++
		c.at = e.Time
	case dormouse.ExecEnding:
		l.command(rig.Decode[dormouse.ExecAnswer](e).Exec).ending = true
	case dormouse.ExecAnswered, dormouse.ExecRefused:
		a := rig.Decode[dormouse.ExecAnswer](e)
		c := l.command(a.Exec)
		c.answer, c.seq = a, e.Seq
		if e.Type == dormouse.ExecRefused {
			c.refused++
		} else {
			c.answered++
		}
	}
}

func (l *journal) command(id dormouse.EventID) *command {
	if l.commands[id] == nil {
		l.commands[id] = new(command)
	}
	return l.commands[id]
}

// judgeAsked: a command is asked for once and answered once, the answer is what the log says,
// and it is true: how the command ended if it ran, and unknown only if its sandbox was lost.
func (l *journal) judgeAsked(e Evidence, f Findings) {
	for id, c := range l.commands {
		switch n := c.answered + c.refused; {
		case c.asked == 0:
			f.Add(Diverged, "command %s was answered and nobody asked for it", id)
		case c.asked > 1 || n > 1:
			f.Add(Double, "command %s was asked for %d times and answered %d times", id, c.asked, n)
		case n == 0:
			f.Add(Stuck, "command %s was never answered", id)
		}
		l.judgeAnswer(id, c, f)
	}
	for _, a := range e.Asked {
		c, t := l.commands[a.Answer.ID], a.Answer
		switch {
		case c == nil || c.answered+c.refused == 0:
			f.Add(Lost, "command %q was answered and the log knows no answer", a.ClientID)
		case t.Exit != c.answer.Exit || t.Output != string(c.answer.Output) || t.Error != c.answer.Error ||
			t.Killed != c.answer.Killed || t.TimedOut != c.answer.TimedOut || t.Unknown != c.answer.Unknown:
			f.Add(Diverged, "of command %q the client was answered %+v, and the log says %+v", a.ClientID, t, c.answer)
		case t.Ran() && (t.Exit != a.Exit || a.Prints != "" && t.Output != a.Prints):
			f.Add(Diverged, "command %q ended with %d and printed %q: that is not what it does", a.ClientID, t.Exit, t.Output)
		}
	}
}

// judgeAnswer: an answer says unknown, killed or never started only where that is possible.
func (l *journal) judgeAnswer(id dormouse.EventID, c *command, f Findings) {
	switch {
	case c.answer.Unknown && !l.boxes.lost[l.generation(id)]:
		f.Add(Diverged, "the outcome of command %s was called unknown, and its sandbox was not lost: %s", id, c.answer.Error)
	case c.answer.Killed && !c.ending && l.ended == 0 && !l.boxes.lost[l.generation(id)]:
		f.Add(Diverged, "command %s was ended, and nobody wanted that", id)
	case c.refused > 0 && !c.answer.Killed && l.ended == 0 && len(l.boxes.lost) == 0:
		f.Add(Diverged, "command %s never began, and no sandbox was lost: %s", id, c.answer.Error)
	}
}

// generation is that of the sandbox which a command was sent to.
func (l *journal) generation(id dormouse.EventID) uint64 {
	for _, op := range l.ops {
		if op.Use == id {
			return op.Generation
		}
	}
	return 0
}
