package law

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/dormouse-run/dormouse"
)

// draft is a decision that is being made. Each event that it adds is applied at once, so
// that what follows is decided in the state that it will meet.
type draft struct {
	State
	c      Command
	rules  map[reflect.Type]*Rule // the table, which would be defined by itself if a verb named it
	events []dormouse.Event
	rows   dormouse.Rows // what the events change, without what follows from the whole
}

// add appends a fact.
func (d *draft) add(t dormouse.EventType, thread dormouse.ThreadID, p any) {
	d.addNamed("", t, thread, d.c.By, p)
}

// record appends an event that the runtime itself causes, whatever command led to it.
func (d *draft) record(t dormouse.EventType, thread dormouse.ThreadID, p any) {
	d.addNamed("", t, thread, dormouse.ActorServer, p)
}

// addNamed appends an event that already has a public id; one without gets the
// id that follows from its place in the log.
func (d *draft) addNamed(id dormouse.EventID, t dormouse.EventType, thread dormouse.ThreadID, by dormouse.Actor, p any) {
	raw, ok := p.(json.RawMessage)
	if !ok && p != nil {
		raw = dormouse.Encode(p)
	}
	seq := d.Seq + 1
	if id == "" {
		id = eventID(d.Session, seq)
	}
	e := dormouse.Event{Seq: seq, ID: id, Type: t, Thread: thread, Actor: by, Time: d.c.Now, Payload: raw}
	d.events = append(d.events, e)
	before := d.State
	d.State = Apply(before, e)
	projectEvent(&d.rows, before, d.State, e)
}

func eventID(s dormouse.SessionID, seq uint64) dormouse.EventID {
	return dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(s), strconv.FormatUint(seq, 10)))
}

// thread resolves the thread a command names; none is the primary one.
func (d *draft) thread(id dormouse.ThreadID) (*Thread, error) {
	if id == "" {
		id = dormouse.PrimaryThread(d.Session)
	}
	if t := d.Thread(id); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("thread %.80s: %w", id, dormouse.ErrNotFound)
}

// recordRunning says that a thread works; was says whether the session did before.
func (d *draft) recordRunning(thread dormouse.ThreadID, was bool) {
	if !was {
		d.record(dormouse.SessionStatusRunning, "", struct{}{})
	}
	d.record(dormouse.SessionThreadStatusRunning, thread, d.threadStatus(thread, nil))
}

// recordIdle says that a thread rests, and the session with it unless another
// thread works.
func (d *draft) recordIdle(thread dormouse.ThreadID, stop dormouse.StopReason) {
	d.record(dormouse.SessionThreadStatusIdle, thread, d.threadStatus(thread, &stop))
	if d.Works() {
		return
	}
	if asked := d.asked(); len(asked) > 0 {
		stop = dormouse.StopReason{Type: dormouse.StopRequiresAction, EventIDs: asked}
	}
	d.record(dormouse.SessionUsage, "", dormouse.Usage{Usage: dormouse.Total(d.Usage, d.CostMicros, d.Active)})
	d.record(dormouse.SessionStatusIdle, "", dormouse.Idle{StopReason: stop, StopDetails: stop.Details()})
}

// asked lists what people are asked for, on any thread.
func (d *draft) asked() []dormouse.EventID {
	var ids []dormouse.EventID
	for _, t := range d.Threads {
		if t.Turn != nil && t.Turn.Blocked == dormouse.BlockedOnPeople {
			ids = append(ids, t.Turn.gated()...)
		}
	}
	return ids
}

func (d *draft) threadStatus(thread dormouse.ThreadID, stop *dormouse.StopReason) dormouse.ThreadStatus {
	s := dormouse.ThreadStatus{Thread: thread, AgentName: d.Agent, StopReason: stop}
	if stop != nil {
		s.StopDetails = stop.Details()
	}
	return s
}

// clearAttention leaves the error of a thread behind.
func (d *draft) clearAttention(thread dormouse.ThreadID) {
	if d.Thread(thread).Attention != nil {
		d.add(dormouse.AttentionCleared, thread, nil)
	}
}
