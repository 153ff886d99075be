package law

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// ClientIDs lists the ids in a verb that may have been given before.
func ClientIDs(v Verb) []string {
	switch v := v.(type) { //nolint:gochecksumtype // the others have no id of a client
	case Prompt:
		if !v.New {
			return []string{string(v.ID)}
		}
	case Run:
		if !v.New {
			return []string{string(v.Exec)}
		}
	case Answer:
		return []string{string(v.ID)}
	case Schedule:
		return []string{string(v.ID)}
	case Spawn:
		return []string{string(v.Child.Session)}
	case ApplyAction:
		return ClientIDs(v.Do)
	case Send:
		var ids []string
		if v.Request != "" {
			ids = append(ids, string(v.Request))
		}
		for _, s := range v.Steps {
			switch {
			case s.Prompt != nil:
				ids = append(ids, ClientIDs(*s.Prompt)...)
			case s.Answer != nil:
				ids = append(ids, ClientIDs(*s.Answer)...)
			}
		}
		return ids
	}
	return nil
}

// given is the event that an id was given to, before or in this very decision.
func (d *draft) given(id string) (dormouse.Event, bool) {
	if e, ok := d.c.Given[id]; ok {
		return e, true
	}
	for _, g := range d.rows.ClientIDs {
		if g.ID == id {
			return d.events[g.Seq-d.events[0].Seq], true
		}
	}
	return dormouse.Event{}, false
}

// again reports whether an id was given before. If it was given to another request, that
// is an error.
func (d *draft) again(id string, same func(dormouse.Event) bool) (bool, error) {
	e, ok := d.given(id)
	if ok && !same(e) {
		return true, OtherRequest(id)
	}
	return ok, nil
}

// OtherRequest refuses an id that was given to something else.
func OtherRequest(id string) error {
	return fmt.Errorf("id %s was given to another request of this session: %w", id, dormouse.ErrConflict)
}

// repeats reports whether a verb was carried out before, so that it is answered even
// by a session which takes no more.
func (d *draft) repeats() bool {
	switch v := d.c.Verb.(type) { //nolint:gochecksumtype // of the others there is no telling
	case Prompt, Run, Answer, Schedule, Spawn:
		for _, id := range ClientIDs(v) {
			if _, ok := d.given(id); ok {
				return true
			}
		}
	case Send:
		_, ok := d.given(string(v.Request))
		return ok
	}
	return false
}

// sameAnswer reports whether an answer is the one that e recorded.
func (v Answer) sameAnswer(e dormouse.Event) bool {
	var p any
	switch e.Type { //nolint:exhaustive // nothing else answers
	case dormouse.QuestionAnswered:
		p = dormouse.Question{Use: v.Use, Content: v.Content}
	case dormouse.UserCustomToolResult:
		p = dormouse.CustomToolResult{Use: v.Use, Content: v.Content, IsError: v.IsError}
	case dormouse.UserToolConfirmation:
		p = v.confirmation()
	default:
		return false
	}
	permits := e.Type == dormouse.UserToolConfirmation
	return permits == (v.Allow != v.Deny) && bytes.Equal(e.Payload, dormouse.Encode(p))
}

// confirmation is what an answer to a permission is recorded as.
func (v Answer) confirmation() dormouse.ToolConfirmation {
	if v.Allow {
		return dormouse.ToolConfirmation{Use: v.Use, Result: "allow"}
	}
	return dormouse.ToolConfirmation{Use: v.Use, Result: "deny", DenyMessage: v.DenyMessage}
}

// giveID lays out the id of a client that an event has. In the log of a program that
// forgot ids one may be there twice: the first stands.
func giveID(rows *dormouse.Rows, before State, e dormouse.Event) {
	id := string(e.ID)
	switch e.Type { //nolint:exhaustive // the others are nothing that a client gives an id to
	case dormouse.PromptQueued, dormouse.ExecAsked:
	case dormouse.QuestionAnswered, dormouse.UserToolConfirmation, dormouse.UserCustomToolResult:
		if len(before.Ops) == 0 {
			return // a branch begins with answers that were given in another session
		}
	case dormouse.WakeupScheduled:
		id = string(Payload[dormouse.Wakeup](e).ID)
	case dormouse.RequestTaken:
		id = string(Payload[dormouse.Taken](e).Request)
	case dormouse.ChildSpawned:
		id = string(Payload[dormouse.Spawned](e).Child.Session)
	default:
		return
	}
	addID(rows, dormouse.ClientID{ID: id, Seq: e.Seq})
}

func addID(rows *dormouse.Rows, given dormouse.ClientID) {
	if given.ID == "" { // its body is lost
		return
	}
	for _, g := range rows.ClientIDs {
		if g.ID == given.ID {
			return
		}
	}
	rows.ClientIDs = append(rows.ClientIDs, given)
}

// ErrRepeated means that what a client asked for under an id was recorded before, and
// is not recorded again.
var ErrRepeated = errors.New("it was recorded before")
