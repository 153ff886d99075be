package v1

import (
	"strings"

	"github.com/dormouse-run/dormouse"
)

// previews shows replies while they are written: what was shown of a message is
// always the beginning of it. Only the first block of a reply is previewed, and
// only of requests that began while the client was listening.
type previews struct {
	view  view
	spans map[dormouse.EventID]bool // requests that began and have not ended
	op    dormouse.OpID             // the request that is being previewed
	id    dormouse.EventID          // its message; empty if nothing is shown of it
	at    int                       // how much of its reply has come
	held  string                    // what has come and was not shown
	begun bool
}

func newPreviews(v view) *previews {
	return &previews{view: v, spans: make(map[dormouse.EventID]bool)}
}

// see notes which requests are open.
func (p *previews) see(e *dormouse.Event) {
	switch e.Type { //nolint:exhaustive // only these begin and end a preview
	case dormouse.SpanModelRequestStart:
		if p.view.shows(e) {
			p.spans[e.ID] = true
		}
	case dormouse.AgentMessage:
		if e.ID == p.id {
			p.id = "" // it is there now
		}
	case dormouse.SpanModelRequestEnd:
		if p.view.shows(e) {
			clear(p.spans)
			p.id = ""
		}
	}
}

// delta encodes a delta of a reply.
func (p *previews) delta(b []byte, d *dormouse.Delta) []byte {
	if d.Op == "" {
		return b
	}
	if d.Op != p.op {
		p.op, p.id, p.at, p.held, p.begun = d.Op, "", 0, "", false
		if p.spans[dormouse.SpanOf(d.Op)] {
			p.id = dormouse.Brought(d.Op, dormouse.AgentMessage, 0)
		}
	}
	if p.id == "" {
		return b
	}
	if d.At != p.at { // something was missed
		p.id = ""
		return b
	}
	p.at += len(d.Text)
	p.held += d.Text[:min(max(d.First, 0), len(d.Text))]
	last := d.First < len(d.Text)
	if strings.TrimSpace(p.held) != "" { // a block of nothing but space is not kept
		if !p.begun {
			p.begun = true
			b = append(append(append(b, messageFrame...), dormouse.Encode(eventStart(p.id))...), "\n\n"...)
		}
		b = append(append(append(b, messageFrame...), dormouse.Encode(eventDelta(p.id, p.held))...), "\n\n"...)
		p.held = ""
	}
	if last {
		p.id = ""
	}
	return b
}

func eventStart(id dormouse.EventID) any {
	type message struct {
		Type dormouse.EventType `json:"type"`
		ID   dormouse.EventID   `json:"id"`
	}
	return struct {
		Type  string  `json:"type"`
		Event message `json:"event"`
	}{"event_start", message{dormouse.AgentMessage, id}}
}

func eventDelta(id dormouse.EventID, text string) any {
	type delta struct {
		Type    string         `json:"type"`
		Index   int            `json:"index"`
		Content dormouse.Block `json:"content"`
	}
	return struct {
		Type  string           `json:"type"`
		Event dormouse.EventID `json:"event_id"`
		Delta delta            `json:"delta"`
	}{"event_delta", id, delta{"content_delta", 0, dormouse.Text(text)}}
}
