package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// What clients give an id to is asked for once, however often it is sent: as long
// as the session lives, the same id is the same request, and the same id with
// another body is refused. The ids are rows beside the log and not in State, which
// would grow with every one of them; whoever decides looks them up first.

// clientIDs lists the ids in a verb that may have been given before.
func clientIDs(v Verb) []string {
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
	case Settle:
		return clientIDs(v.Do)
	case Send:
		var ids []string
		if v.Request != "" {
			ids = append(ids, string(v.Request))
		}
		for _, s := range v.Steps {
			switch {
			case s.Prompt != nil:
				ids = append(ids, clientIDs(*s.Prompt)...)
			case s.Answer != nil:
				ids = append(ids, clientIDs(*s.Answer)...)
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

// again reports whether an id was given before. If that was to something else, it
// says so.
func (d *draft) again(id string, same func(dormouse.Event) bool) (bool, error) {
	e, ok := d.given(id)
	if ok && !same(e) {
		return true, otherRequest(id)
	}
	return ok, nil
}

func otherRequest(id string) error {
	return fmt.Errorf("id %s was given to another request of this session: %w", id, dormouse.ErrConflict)
}

// repeats reports whether a verb was carried out before, so that it is answered even
// by a session which takes no more.
func (d *draft) repeats() bool {
	switch v := d.c.Verb.(type) { //nolint:gochecksumtype // of the others there is no telling
	case Prompt, Run, Answer, Schedule, Spawn:
		for _, id := range clientIDs(v) {
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
		id = string(payload[dormouse.Wakeup](e).ID)
	case dormouse.RequestTaken:
		id = string(payload[dormouse.Taken](e).Request)
	case dormouse.ChildSpawned:
		id = string(payload[dormouse.Spawned](e).Child.Session)
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

// given finds what the ids in a verb were given to.
func (a *Actor) given(ctx context.Context, v Verb) (map[string]dormouse.Event, error) {
	ids := clientIDs(v)
	if len(ids) == 0 {
		return nil, nil
	}
	return given(ctx, a.deps, a.id, ids...)
}

func given(ctx context.Context, deps *Config, id dormouse.SessionID, ids ...string) (map[string]dormouse.Event, error) {
	seqs, err := deps.Store.ClientIDs(ctx, id, ids...)
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	found := make(map[string]dormouse.Event, len(seqs))
	for name, seq := range seqs {
		events, err := deps.Store.Read(ctx, id, seq-1, 1)
		if err == nil && len(events) == 0 {
			err = unreadable(id, seq, errNoRow)
		}
		if err != nil {
			return nil, err
		}
		e, err := inflate(ctx, deps.Blobs, events[0])
		if isLost(err) && e.Type == dormouse.PromptQueued { // what its row keeps of it is enough
			var row dormouse.PromptRecord
			row, err = deps.Store.Prompt(ctx, id, e.ID)
			e.Payload = dormouse.Encode(bodyOnly{row.Body})
		}
		if err != nil && !isLost(err) { // what is lost is the same as nothing
			return nil, err
		}
		found[name] = e
	}
	return found, nil
}

// Given returns the event that a client's id was given to, or dormouse.ErrNotFound.
func (s *Sessions) Given(ctx context.Context, id dormouse.SessionID, clientID string) (dormouse.Event, error) {
	found, err := given(ctx, s.deps, id, clientID)
	if err != nil {
		return dormouse.Event{}, err
	}
	e, ok := found[clientID]
	if !ok {
		return e, dormouse.ErrNotFound
	}
	return e, nil
}

// Once is Do for what has an id of its client's. It also reports whether the session
// had recorded it before: of those who send the same, however close together, one is
// told that it was new.
func (s *Sessions) Once(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v Verb) (again bool, err error) {
	err = s.do(ctx, id, by, v)
	if errors.Is(err, ErrRepeated) {
		return true, nil
	}
	return false, err
}
