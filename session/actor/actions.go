package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// Apply implements agent.Journal.
func (j *journal) Apply(ctx context.Context, use dormouse.Use, w tool.Action) error {
	v := law.ApplyAction{Work: j.work, Use: use.ID}
	switch w := w.(type) {
	case tool.Schedule:
		s := law.Schedule{
			Thread: j.thread, ID: dormouse.WakeupID(dormouse.DeriveID(dormouse.WakeupPrefix, string(j.a.id), string(use.ID))),
			Cron: w.Cron, Content: w.Content,
		}
		if w.After > 0 {
			s.At = j.a.deps.Clock().Add(w.After)
		}
		v.Do, v.Text = s, fmt.Sprintf("Wake-up %s is scheduled.", s.ID)
	case tool.Unschedule:
		v.Do, v.Text = law.Unschedule{ID: w.ID, Reason: "the agent cancelled it"}, fmt.Sprintf("Wake-up %s is cancelled.", w.ID)
	case tool.Wakeups:
		text, err := j.wakeups(ctx)
		if err != nil {
			return err
		}
		v.Text = text
	case tool.Spawn:
		made, err := j.made(ctx)
		if err != nil {
			return err
		}
		child := childOf(made, w)
		child.Session = dormouse.ChildID(j.a.id, string(use.ID))
		v.Do = law.Spawn{Spawned: dormouse.Spawned{Child: child, Prompt: w.Prompt}}
		v.Text = fmt.Sprintf("Child session %s is started.", child.Session)
	case tool.EndChild:
		v.Do = law.EndChild{Child: w.Child, Reason: "the agent ended it"}
		v.Text = fmt.Sprintf("Child session %s is being terminated.", w.Child)
	case tool.Restore, tool.Snapshots, tool.DeleteSnapshot:
		var err error
		if v.Do, v.Text, err = j.snapshotAction(ctx, w); err != nil && !j.a.isRefusal(err) {
			return err
		}
		v.Failed = err
	case tool.Nothing:
		v.Failed = errors.New(w.Why)
	case tool.Question, tool.Message, tool.Wait, tool.Look, tool.Snapshot:
		return fmt.Errorf("%T changes nothing in the session: %w", w, dormouse.ErrInvalid)
	}
	if _, ok := v.Do.(law.Swap); ok {
		if err := j.awaitSnapshot(ctx); err != nil {
			return err
		}
	}
	if err := j.record(ctx, v); err != nil {
		return err
	}
	if swap, ok := v.Do.(law.Swap); ok {
		j.a.deps.Workspaces.ReleaseSwap(ctx, j.a.id, swap.WorkspaceSwap) // the law may have refused it
	}
	return nil
}

// made is how the session was created, with the agent that it works with now.
func (j *journal) made(ctx context.Context) (made dormouse.Created, err error) {
	if made, err = j.a.log.Created(ctx, j.a.id); err != nil {
		return made, err
	}
	err = j.ask(ctx, func(ctx context.Context, t *law.Turn) error {
		config, err := j.a.agentConfig(ctx, t.Config)
		if err == nil {
			made.Agent = *config
		}
		return err
	})
	return made, err
}

// childOf is a child with what its parent has, as far as the action does not say
// otherwise.
func childOf(parent dormouse.Created, w tool.Spawn) dormouse.Created {
	child := dormouse.Created{
		Title: w.Title, Agent: parent.Agent, Recovery: parent.Recovery, FlushOnError: parent.FlushOnError, SleepAfter: parent.SleepAfter,
	}
	if w.System != "" || w.Tools != nil { // then it is no longer that of the catalog
		child.Agent.ID, child.Agent.Version, child.Agent.Shown = "", 0, nil
	}
	if w.System != "" {
		child.Agent.System = w.System
	}
	if w.Tools != nil {
		child.Agent.Tools = nil
		for _, name := range *w.Tools {
			t := dormouse.ToolConfig{Name: name}
			if i := slices.IndexFunc(parent.Agent.Tools, func(p dormouse.ToolConfig) bool { return p.Name == name }); i >= 0 {
				t = parent.Agent.Tools[i]
			}
			child.Agent.Tools = append(child.Agent.Tools, t)
		}
	}
	return child
}

// wakeups words what is scheduled.
func (j *journal) wakeups(ctx context.Context) (string, error) {
	var b strings.Builder
	err := j.ask(ctx, func(context.Context, *law.Turn) error {
		for _, w := range j.a.state.Wakeups {
			fmt.Fprintf(&b, "%s fires at %s", w.ID, w.At.Format(time.RFC3339))
			if w.Cron != "" {
				fmt.Fprintf(&b, " and then by %q", w.Cron)
			}
			b.WriteString("\n")
		}
		return nil
	})
	if b.Len() == 0 {
		b.WriteString("No wake-up is scheduled.")
	}
	return b.String(), err
}

// Reach implements agent.Journal.
func (j *journal) Reach(ctx context.Context, op dormouse.Op, w tool.Action) (text string, failed bool, err error) {
	switch w := w.(type) {
	case tool.Message:
		text, err = j.a.promptOwnChild(ctx, op, w)
	case tool.Wait:
		text, err = j.a.awaitChild(ctx, w)
	case tool.Look:
		text, err = j.a.lastOf(ctx, w)
	case tool.Snapshot:
		text, err = j.a.snapshotForAgent(ctx, op)
	case tool.Nothing, tool.Restore, tool.Snapshots, tool.DeleteSnapshot, tool.Question, tool.Schedule, tool.Unschedule, tool.Wakeups, tool.Spawn, tool.EndChild:
		return "", false, fmt.Errorf("%T reaches no other session: %w", w, dormouse.ErrInvalid)
	}
	if errors.Is(err, dormouse.ErrClosing) {
		<-ctx.Done() // the attempt ends with the server, and is given back
		return "", false, context.Cause(ctx)
	}
	if j.a.isRefusal(err) {
		return err.Error(), true, nil // the agent asked for what cannot be
	}
	return text, false, err
}

// isRefusal reports whether err refuses what an agent has asked for, so that the agent is
// told. That another session is damaged is a refusal; that this one is damaged is not.
func (a *Actor) isRefusal(err error) bool {
	if a.ownDamage(err) != nil {
		return false
	}
	for _, refusal := range []error{
		dormouse.ErrNotFound, dormouse.ErrTerminated, dormouse.ErrInvalid, dormouse.ErrConflict, dormouse.ErrTooLarge, dormouse.ErrDamaged,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// promptOwnChild sends a child a prompt under an id that follows from the op, so that
// sent twice it is one prompt.
func (a *Actor) promptOwnChild(ctx context.Context, op dormouse.Op, w tool.Message) (string, error) {
	if _, err := a.child(ctx, w.Child); err != nil {
		return "", err
	}
	err := a.deps.Sessions.Do(ctx, w.Child, dormouse.FromSession(a.id), law.Prompt{
		Under: a.fence(), ID: dormouse.PromptID(w.Child, string(op.ID)), Body: dormouse.DigestOf(dormouse.Encode(w.Content)), Content: w.Content,
	})
	return fmt.Sprintf("Child session %s has the prompt.", w.Child), err
}

// awaitChild waits until a child rests, or for as long as it was told to.
func (a *Actor) awaitChild(ctx context.Context, w tool.Wait) (string, error) {
	within, cancel := context.WithTimeout(ctx, w.For)
	defer cancel()
	var f *feed.Follower
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for {
		row, err := a.child(ctx, w.Child)
		if err != nil {
			return "", err
		}
		rests, err := a.isResting(ctx, row)
		if err != nil {
			return "", err
		}
		if rests || within.Err() != nil {
			said, err := a.lastOf(ctx, tool.Look{Child: w.Child, Last: 1})
			return fmt.Sprintf("Child session %s is %s.\n%s", w.Child, row.Phase, said), err
		}
		if f == nil {
			if f, err = a.deps.Sessions.Follow(ctx, w.Child, row.Seq); err != nil {
				return "", err
			}
		}
		const lookAgain = 5 * time.Second // whatever was missed
		next, stop := context.WithTimeout(within, lookAgain)
		_, err = f.Next(next)
		late := next.Err() != nil
		stop()
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case errors.Is(err, dormouse.ErrBehind):
			f.Close()
			f = nil
		case err != nil && !late:
			return "", err
		}
	}
}

// isResting reports whether a session has nothing left to do by itself.
func (a *Actor) isResting(ctx context.Context, row dormouse.SessionRow) (bool, error) {
	if row.Status == dormouse.StatusTerminated {
		return true, nil
	}
	if row.Status != dormouse.StatusIdle {
		return false, nil
	}
	waiting, err := a.deps.Sessions.Prompts(ctx, row.Session, dormouse.PromptIsQueued)
	return len(waiting) == 0, err
}

// maxShown bounds what one look at a child brings.
const maxShown = 32 << 10

// lastOf words the last things a child was asked, said and did.
func (a *Actor) lastOf(ctx context.Context, w tool.Look) (string, error) {
	row, err := a.child(ctx, w.Child)
	if err != nil {
		return "", err
	}
	const stride = 200
	var lines []string
	for upto := row.Seq; upto > 0 && len(lines) < w.Last; {
		from := upto - min(upto, stride)
		page, err := a.conversation(ctx, w.Child, from, upto)
		if err != nil {
			return "", err
		}
		lines = append(page, lines...)
		upto = from
	}
	if n := len(lines) - w.Last; n > 0 {
		lines = lines[n:]
	}
	if len(lines) == 0 {
		return "It has said nothing yet.", nil
	}
	return tail(strings.Join(lines, "\n")), nil
}

// tail is what fits of a text, the last of it.
func tail(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return "[…]" + strings.ToValidUTF8(text[len(text)-maxShown:], "")
}

// conversation words what was said between two seqs. Of what is long it keeps no more
// than is shown, since a child may have been asked very much.
func (a *Actor) conversation(ctx context.Context, id dormouse.SessionID, after, upto uint64) ([]string, error) {
	var lines []string
	add := func(what, words string) { lines = append(lines, what+": "+tail(words)) }
	for after < upto {
		events, err := a.deps.Sessions.Events(ctx, id, after, int(min(upto-after, history.Page)))
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			switch e.Type { //nolint:exhaustive // the others are no part of the conversation
			case dormouse.UserMessage:
				add("Asked", textOf(law.Payload[dormouse.Message](e).Content))
			case dormouse.AgentMessage:
				add("Said", textOf(law.Payload[dormouse.Message](e).Content))
			case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
				p := law.Payload[dormouse.ToolUse](e)
				add("Called", p.Name+" "+string(p.Input))
			case dormouse.SessionError:
				add("Failed", law.Payload[dormouse.Failure](e).Error.Message)
			}
		}
	}
	return lines, nil
}

func textOf(content []dormouse.Block) string {
	var words []string
	for _, b := range content {
		words = append(words, b.Text)
	}
	return strings.Join(words, "\n")
}
