package law

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
)

func (d *draft) create(v Create) error {
	if d.Seq != 0 {
		return fmt.Errorf("session %s exists: %w", v.Session, dormouse.ErrConflict)
	}
	if err := v.Validate(); err != nil {
		return err
	}
	d.Session = v.Session
	d.add(dormouse.SessionCreated, "", v.Created)
	switch {
	case v.Branch != nil:
		d.branch(v)
	case v.Files != nil:
		d.begin(*v.Files)
	}
	for _, p := range v.Prompts {
		if err := d.prompt(p); err != nil {
			return err
		}
	}
	if v.Warm {
		return d.warm()
	}
	return nil
}

// prompt queues what was asked. The same id twice is one prompt; the same id
// with another body, or on another thread, is refused.
func (d *draft) prompt(v Prompt) error {
	if !v.New {
		if again, err := d.promptAgain(v); again {
			return err
		}
	}
	if err := dormouse.ValidateContent(v.Content); err != nil {
		return err
	}
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	if !t.Archived.IsZero() {
		return fmt.Errorf("thread %s is archived: %w", t.ID, dormouse.ErrConflict)
	}
	if len(t.Queue) >= MaxQueue {
		return fmt.Errorf("%d prompts are queued already; wait, cancel some or interrupt: %w", len(t.Queue), dormouse.ErrConflict)
	}
	id := t.ID
	d.clearAttention(id)
	d.addNamed(v.ID, dormouse.PromptQueued, id, d.c.By,
		dormouse.PromptBody{Prompt: v.ID, Body: v.Body, Content: v.Content, System: v.System})
	if d.Sandbox.Phase == SandboxCold && d.Sandbox.Generation > 0 {
		return d.warm()
	}
	return nil
}

// promptAgain reports whether a prompt was sent before, and refuses it if that was
// another.
func (d *draft) promptAgain(v Prompt) (bool, error) {
	prior, again := dormouse.PromptRecord{}, false
	if held := promptsNamed(d.State, []dormouse.EventID{v.ID}); len(held) > 0 {
		prior, again = held[0], true
	} else if e, ok := d.given(string(v.ID)); ok {
		if again = true; e.Type == dormouse.PromptQueued {
			prior.Thread, prior.Body = e.Thread, Payload[BodyOnly](e).Body
		}
	}
	if again && (prior.Body != v.Body || prior.Thread != cmp.Or(v.Thread, dormouse.PrimaryThread(d.Session))) {
		return true, fmt.Errorf("prompt %s was already sent with another body or to another thread: %w", v.ID, dormouse.ErrConflict)
	}
	return again, nil
}

func (d *draft) cancel(v Cancel) error {
	for _, t := range d.Threads {
		if t.Turn != nil && slices.ContainsFunc(t.Turn.Prompts, named(v.Prompt)) {
			return fmt.Errorf("prompt %s is being worked on; interrupt the turn instead: %w", v.Prompt, dormouse.ErrConflict)
		}
		if slices.ContainsFunc(t.Queue, named(v.Prompt)) {
			d.add(dormouse.PromptCancelled, t.ID, dormouse.Prompts{Prompts: []dormouse.EventID{v.Prompt}, Reason: v.Reason})
			return nil
		}
	}
	return fmt.Errorf("no prompt %s is queued: %w", v.Prompt, dormouse.ErrNotFound)
}

func named(id dormouse.EventID) func(dormouse.PromptRecord) bool {
	return func(q dormouse.PromptRecord) bool { return q.ID == id }
}

// take starts a turn on the next prompt. Only now does it enter the
// conversation, so that log order is the order the model sees.
func (d *draft) take(v Take) error {
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	if t.Turn != nil || len(t.Queue) == 0 || t.Queue[0].ID != v.Prompt {
		return fmt.Errorf("prompt %s is not next: %w", v.Prompt, dormouse.ErrConflict)
	}
	id, asker := t.ID, d.c.By
	d.clearAttention(id)
	d.startTurn(id, []dormouse.EventID{v.Prompt}, "", func() {
		d.addNamed(v.Prompt, dormouse.UserMessage, id, asker, dormouse.Message{Content: v.Content})
		if v.System != nil {
			d.addNamed(v.System.ID, dormouse.SystemMessage, id, asker, dormouse.Message{Content: v.System.Content})
		}
	})
	return nil
}

// startTurn records a turn and its first attempt. say adds the events with which the turn
// enters the conversation.
func (d *draft) startTurn(thread dormouse.ThreadID, prompts []dormouse.EventID, retryOf dormouse.TurnID, say func()) {
	was := d.Works()
	turn := dormouse.TurnID(dormouse.DeriveID(dormouse.TurnPrefix, string(eventID(d.Session, d.Seq+1))))
	d.record(dormouse.TurnStarted, thread, dormouse.TurnFact{Turn: turn, Prompts: prompts, RetryOf: retryOf})
	d.record(dormouse.AttemptStarted, thread, dormouse.Attempt{Turn: turn, Epoch: d.c.Epoch})
	say()
	d.recordRunning(thread, was)
}

// flush cancels everything queued on a thread.
func (d *draft) flush(thread dormouse.ThreadID, reason string) {
	t := d.Thread(thread)
	if t == nil || len(t.Queue) == 0 {
		return
	}
	d.add(dormouse.PromptCancelled, thread, dormouse.Prompts{Prompts: ids(t.Queue), Reason: reason})
}

func ids(prompts []dormouse.PromptRecord) []dormouse.EventID {
	out := make([]dormouse.EventID, 0, len(prompts))
	for _, q := range prompts {
		out = append(out, q.ID)
	}
	return out
}
