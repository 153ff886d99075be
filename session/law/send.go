package law

import (
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// MaxSteps bounds what one request may ask for.
const MaxSteps = 1000

// send records all steps of a request, or none. A request that has an id is recorded
// once, whatever has become of it since. Answers of one request are recorded together:
// the turn goes on only when all of them are there.
func (d *draft) send(v Send) error {
	if len(v.Steps) == 0 || len(v.Steps) > MaxSteps {
		return fmt.Errorf("a request has 1 to %d events, this one %d: %w", MaxSteps, len(v.Steps), dormouse.ErrInvalid)
	}
	if v.Request != "" {
		if e, again := d.given(string(v.Request)); again {
			return sameRequest(e, v.Body)
		}
	}
	var answered []dormouse.ThreadID
	for i, s := range v.Steps {
		thread, err := d.step(s)
		if err != nil {
			return fmt.Errorf("events[%d]: %w", i, err)
		}
		if thread != "" && !slices.Contains(answered, thread) {
			answered = append(answered, thread)
		}
	}
	for _, thread := range answered {
		d.unblock(thread)
	}
	if v.Request != "" {
		d.add(dormouse.RequestTaken, "", dormouse.Taken{Request: v.Request, Body: v.Body})
	}
	return nil
}

// ErrOtherRequest means that another request was taken under the same name.
var ErrOtherRequest = fmt.Errorf("this name was given to another request: %w", dormouse.ErrConflict)

func sameRequest(e dormouse.Event, body dormouse.Digest) error {
	if e.Type != dormouse.RequestTaken || Payload[dormouse.Taken](e).Body != body {
		return ErrOtherRequest
	}
	return nil
}

// step takes one event, and says on which thread it answered something.
func (d *draft) step(s Step) (answered dormouse.ThreadID, err error) {
	switch {
	case s.Prompt != nil:
		if s.Prompt.System != nil && d.waits(s.Prompt.Thread) {
			return "", fmt.Errorf("a system message must wait until the tool calls are answered, or follow their answer: %w", dormouse.ErrConflict)
		}
		return "", d.prompt(*s.Prompt)
	case s.Interrupt != nil:
		return "", d.interrupt(*s.Interrupt)
	case s.Answer != nil:
		if again, err := d.again(string(s.Answer.ID), s.Answer.sameAnswer); again {
			return "", err
		}
		t, use, err := d.waiting(s.Answer.Use)
		if err != nil {
			return "", err
		}
		thread := t.ID
		return thread, d.recordAnswer(*s.Answer, thread, use)
	case s.System != nil:
		return "", d.system(*s.System)
	}
	return "", fmt.Errorf("it asks for nothing: %w", dormouse.ErrInvalid)
}

// system adds a system message after the answer to a tool call. The turn goes on with
// both.
func (d *draft) system(b dormouse.SystemBody) error {
	if err := dormouse.ValidateContent(b.Content); err != nil {
		return err
	}
	for _, e := range slices.Backward(d.events) {
		if e.Type == dormouse.UserCustomToolResult {
			d.addNamed(b.ID, dormouse.SystemMessage, e.Thread, d.c.By, dormouse.Message{Content: b.Content})
			return nil
		}
	}
	return fmt.Errorf("a system message follows a message or the answer to a tool call: %w", dormouse.ErrInvalid)
}

// waits reports whether the turn of a thread waits for people.
func (d *draft) waits(thread dormouse.ThreadID) bool {
	t, err := d.thread(thread)
	return err == nil && t.Turn != nil && t.Turn.Blocked == dormouse.BlockedOnPeople && len(t.Turn.gated()) > 0
}
