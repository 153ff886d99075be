package oracle

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// Tree is a session and all that descend from it, the root first.
type Tree []Evidence

// member is one session of a tree.
type member struct {
	*journal
	Evidence
}

// Judge finds what is wrong with each session, and between them.
func (t Tree) Judge() Findings {
	f := make(Findings)
	all, members := make(map[dormouse.SessionID]member), make([]member, 0, len(t))
	for i, e := range t {
		m := member{read(e.Log), e}
		all[m.born.Session], members = m, append(members, m)
		found := make(Findings)
		m.judge(e, found)
		for zero, texts := range found {
			for _, text := range texts {
				if i > 0 {
					text = fmt.Sprintf("descendant %q: %s", m.born.Title, text)
				}
				f.Add(zero, "%s", text)
			}
		}
	}
	t.judgeNonces(f)
	for i, m := range members {
		if p, ok := all[m.born.Parent]; i > 0 && (!ok || p.children[m.born.Session] == nil) {
			f.Add(Double, "session %s was made, and its parent never asked for it", m.born.Session)
		}
		for id, c := range m.children {
			child, made := all[id]
			m.judgeChild(c, made, f)
			if made {
				m.judgeMade(c, child, f)
			}
		}
		m.judgeMessages(all, f)
	}
	return f
}

// judgeNonces: no command happens twice, not even in two sessions.
func (t Tree) judgeNonces(f Findings) {
	in := make(map[string]int)
	for i, e := range t {
		for _, x := range e.Effects {
			name := x.Nonce + " " + x.Mark
			if first, ok := in[name]; ok && first != i {
				f.Add(Double, "%s of the command %s happened in two sessions", x.Mark, x.Nonce)
			}
			in[name] = i
		}
	}
}

// judgeChild: a child that was asked for is made or ended, and ends with its
// parent.
func (m member) judgeChild(c *child, made bool, f Findings) {
	id := c.Child.Session
	switch {
	case c.started > 0 && !made:
		f.Add(Lost, "child %s was started and is not there", id)
	case c.started == 0 && c.ended == 0:
		f.Add(Stuck, "child %s was asked for and neither started nor ended", id)
	case m.ended > 0 && c.ended != 1:
		f.Add(Stuck, "child %s of a session that has ended was ended %d times", id, c.ended)
	}
}

// judgeMade: a child that was made is its parent's, has its first prompt once,
// and is not made after it has ended.
func (m member) judgeMade(c *child, made member, f Findings) {
	id := c.Child.Session
	switch {
	case made.born.Parent != m.born.Session || made.born.Depth != m.born.Depth+1:
		f.Add(Diverged, "child %s was made as one of %s at depth %d", id, made.born.Parent, made.born.Depth)
	case c.ended > 0 && made.ended != 1:
		f.Add(Diverged, "child %s ended for its parent, and was terminated %d times", id, made.ended)
	case c.ended == 0 && made.ended > 0:
		f.Add(Stuck, "child %s has ended, and its parent keeps its place", id)
	case c.ended > 0 && m.before(c.endedAt, made.born.at):
		f.Add(Late, "child %s was made at %s, after it had ended at %s", id, made.born.at, c.endedAt)
	}
	// One that was terminated before its prompt came has none.
	first := dormouse.PromptID(id, "spawn")
	if len(c.Prompt) > 0 && c.started > 0 && (made.ended == 0 || made.prompts[first] != nil) {
		made.judgePrompt("the first prompt of child "+string(id), first, made.ended > 0, made.Evidence, f)
	}
}

// judgeMessages: a message that an agent was told its child has is there, once.
func (m member) judgeMessages(all map[dormouse.SessionID]member, f Findings) {
	for _, id := range m.order {
		op := m.ops[id]
		if op.Kind != dormouse.OpMessage || op.ended.IsZero() || op.end.Outcome != dormouse.OutcomeOK {
			continue
		}
		var input struct {
			Child dormouse.SessionID `json:"child"`
		}
		decode(m.uses[op.Use].Input, &input)
		name := fmt.Sprintf("message %s to child %s", id, input.Child)
		if to, ok := all[input.Child]; ok {
			to.judgePrompt(name, dormouse.PromptID(input.Child, string(id)), to.ended > 0, to.Evidence, f)
		} else {
			f.Add(Lost, "%s was sent, and there is no such child", name)
		}
	}
}
