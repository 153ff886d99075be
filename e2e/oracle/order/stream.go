package order

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// shown is a preview that has started.
type shown struct {
	kind string
	text map[int]*strings.Builder
	done string // why nothing may follow
}

// preview looks at the start of an event, or at a piece of it.
func (c *checker) preview(e *event) {
	if e.Type == "event_start" {
		c.start(e)
		return
	}
	s := c.starts[e.EventID]
	switch {
	case s == nil:
		c.wrong(Previews, "a piece of %q, which has not started", e.EventID)
	case s.done != "":
		c.wrong(Previews, "a piece of %s after %s", e.EventID, s.done)
	case s.kind == "agent.thinking":
		c.wrong(Previews, "a piece of a thought")
	case e.Delta == nil:
		c.wrong(Previews, "a piece of nothing")
	default:
		b := s.text[e.Delta.Index]
		if b == nil {
			b = new(strings.Builder)
			s.text[e.Delta.Index] = b
		}
		b.WriteString(e.Delta.Content.Text)
	}
}

func (c *checker) start(e *event) {
	if e.Event == nil || e.Event.ID == "" {
		c.wrong(Previews, "the start of nothing")
		return
	}
	id := e.Event.ID
	switch {
	case c.starts[id] != nil:
		c.wrong(Previews, "%s starts twice", id)
		return
	case c.ids[id] != nil:
		c.wrong(Previews, "%s starts after it was there", id)
	case !slices.Contains(c.previews, e.Event.Type):
		c.wrong(Previews, "nobody asked for previews of %s", e.Event.Type)
	case c.span == "":
		c.wrong(Previews, "%s starts outside of a model request that this connection saw begin", id)
	}
	c.starts[id] = &shown{kind: e.Event.Type, text: make(map[int]*strings.Builder)}
}

// whole looks at an event of which previews were shown.
func (c *checker) whole(e *event) {
	if e.Type == "span.model_request_end" {
		for _, s := range c.starts {
			if s.done == "" {
				s.done = "its model request"
			}
		}
		return
	}
	s := c.starts[e.ID]
	if s == nil {
		return
	}
	switch {
	case s.done != "":
		c.wrong(Previews, "%s comes after %s", e.ID, s.done)
	case s.kind != e.Type:
		c.wrong(Previews, "%s started as %s and is %s", e.ID, s.kind, e.Type)
	default:
		for _, i := range slices.Sorted(maps.Keys(s.text)) {
			if i < 0 || i >= len(e.Content) || !strings.HasPrefix(e.Content[i].Text, s.text[i].String()) {
				c.wrong(Previews, "%q is not the beginning of block %d of %s", s.text[i], i, e.ID)
			}
		}
	}
	s.done = "the event itself"
}

// Within compares what one connection saw with the log: the stored events must be one
// part of the log, without a gap. The log may go on after the connection ended.
func Within(stream, log []json.RawMessage) []Finding {
	c := newChecker(true)
	place := make(map[string]int)
	for i, raw := range log {
		if e, ok := stored(raw); ok {
			place[e.ID] = i
		}
	}
	next := -1
	for i, raw := range stream {
		c.at = i
		e, ok := stored(raw)
		if !ok || e.Type == "session.deleted" { // nothing is left to list
			continue
		}
		at, ok := place[e.ID]
		switch {
		case !ok:
			c.wrong(Gap, "%s %s is not in the log", e.Type, e.ID)
			continue
		case next >= 0 && at != next:
			c.wrong(Gap, "%s %s is number %d of the log, and number %d was due", e.Type, e.ID, at, next)
		case !equal(raw, log[at]):
			c.wrong(Gap, "%s is %s here and %s in the log", e.ID, raw, log[at])
		}
		next = at + 1
	}
	return c.found
}

// stored reads an event that is in its place in the log.
func stored(raw json.RawMessage) (*event, bool) {
	e := new(event)
	if json.Unmarshal(raw, e) != nil || e.preview() || e.ID == "" {
		return e, false
	}
	return e, e.ProcessedAt != nil
}

// equal reports whether two texts are the same JSON.
func equal(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x) // was JSON a line before
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}
