package session

import (
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// MaxSteps bounds what one request may ask for.
const MaxSteps = 1000

// send takes everything of a request or nothing. A request that has a name is
// taken once, whatever has become of it since.
func (d *draft) send(v Send) error {
	if len(v.Steps) == 0 || len(v.Steps) > MaxSteps {
		return fmt.Errorf("a request has 1 to %d events, this one %d: %w", MaxSteps, len(v.Steps), dormouse.ErrInvalid)
	}
	if v.Request != "" {
		for _, r := range d.Requests {
			if r.Request == v.Request {
				return sameRequest(r.Body, v.Body)
			}
		}
	}
	for i, s := range v.Steps {
		if err := d.step(s); err != nil {
			return fmt.Errorf("events[%d]: %w", i, err)
		}
	}
	if v.Request != "" {
		d.add(dormouse.RequestTaken, "", dormouse.Taken{Request: v.Request, Body: v.Body})
	}
	return nil
}

// ErrOtherRequest means that another request was taken under the same name.
var ErrOtherRequest = fmt.Errorf("this name was given to another request: %w", dormouse.ErrConflict)

func sameRequest(was, is dormouse.Digest) error {
	if was != is {
		return ErrOtherRequest
	}
	return nil
}

func (d *draft) step(s Step) error {
	switch {
	case s.Prompt != nil:
		if s.Prompt.System != nil && d.waits(s.Prompt.Thread) {
			return fmt.Errorf("a system message must wait until the tool calls are answered, or follow their answer: %w", dormouse.ErrConflict)
		}
		return d.prompt(*s.Prompt)
	case s.Interrupt != nil:
		return d.interrupt(*s.Interrupt)
	case s.Answer != nil:
		return d.answer(*s.Answer)
	case s.System != nil:
		return d.system(*s.System)
	}
	return fmt.Errorf("it asks for nothing: %w", dormouse.ErrInvalid)
}

// system says something to the model after the answer to a tool call. The turn
// goes on with both.
func (d *draft) system(b dormouse.SystemBody) error {
	if err := dormouse.ValidateContent(b.Content); err != nil {
		return err
	}
	if len(d.events) == 0 {
		return fmt.Errorf("a system message follows a message or the answer to a tool call: %w", dormouse.ErrInvalid)
	}
	d.addNamed(b.ID, dormouse.SystemMessage, d.events[0].Thread, d.c.By, dormouse.Message{Content: b.Content})
	return nil
}

// waits reports whether the turn of a thread waits for people.
func (d *draft) waits(thread dormouse.ThreadID) bool {
	t, err := d.thread(thread)
	return err == nil && t.Turn != nil && t.Turn.Blocked == dormouse.BlockedOnPeople
}

// keptRequests is how many named requests a session remembers.
const keptRequests = 256

func applyRequest(s *State, p dormouse.Taken) {
	if n := len(s.Requests) - keptRequests + 1; n > 0 {
		s.Requests = s.Requests[n:]
	}
	s.Requests = append(slices.Clip(s.Requests), p)
}
