package order

import "slices"

// call is a tool call.
type call struct {
	kind      string // the type of the event that made it
	ask       bool   // people are asked first
	elsewhere bool   // it belongs to a thread of its own
	answer    string // allow, deny, or custom once people have answered
	results   int
	void      bool // it was interrupted
}

// open reports whether the turn waits for people because of it.
func (k *call) open() bool {
	if k.void || k.results > 0 {
		return false
	}
	return k.answer == "" && (k.ask || k.kind == "agent.custom_tool_use")
}

// work looks at what an agent does, and when.
func (c *checker) work(e *event) {
	switch e.Type {
	case "span.model_request_start":
		c.works(e)
		if c.span != "" {
			c.wrong(Spans, "%s begins while %s is open", e.ID, c.span)
		}
		if c.interrupted && c.session.status == running {
			c.wrong(Interrupt, "a model is asked after the interrupt")
		}
		c.span, c.seenSpan = e.ID, true
	case "span.model_request_end":
		if c.span != e.SpanStart && (c.seenSpan || !c.partial) {
			c.wrong(Spans, "%s ends %s, and %q is open", e.ID, e.SpanStart, c.span)
		}
		c.span, c.seenSpan = "", true
	case "agent.message", "agent.thinking", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use":
		c.works(e)
		if c.span == "" && (c.seenSpan || !c.partial) && !c.foreign(e) {
			c.wrong(Spans, "%s outside of a model request", e.Type)
		}
	case "agent.tool_result", "agent.mcp_tool_result":
		if c.span != "" {
			c.wrong(Spans, "%s inside a model request", e.Type)
		}
	case "user.interrupt":
		c.interrupt(e)
	}
}

// foreign reports whether an event was cross-posted from another thread.
func (c *checker) foreign(e *event) bool { return e.Thread != "" && e.Thread != c.primary }

// works looks at whether the session runs.
func (c *checker) works(e *event) {
	switch {
	case c.foreign(e):
	case c.session.status == "":
		c.session.status = running // as it must have been
	case c.session.status != running && c.session.status != rescheduled:
		c.wrong(Working, "%s while the session is %s", e.Type, c.session.status)
	}
}

// interrupt voids what is open.
func (c *checker) interrupt(e *event) {
	if c.foreign(e) {
		return
	}
	busy := c.session.status == running || c.session.status == rescheduled || c.session.stop.Type == actionStop
	c.interrupted = busy
	if !busy {
		return
	}
	for _, k := range c.calls {
		if k.results == 0 {
			k.void = true
		}
	}
}

// tools looks at calls, their results, and what people say to them.
func (c *checker) tools(e *event) {
	switch e.Type {
	case "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use":
		c.calls[e.ID] = &call{kind: e.Type, ask: e.Permission == "ask", elsewhere: c.foreign(e)}
		c.order = append(c.order, e.ID)
	case "agent.tool_result":
		c.result(e, e.ToolUse, "agent.tool_use")
	case "agent.mcp_tool_result":
		c.result(e, e.MCPToolUse, "agent.mcp_tool_use")
	case "user.tool_result":
		c.result(e, e.ToolUse, "agent.tool_use")
	case "user.custom_tool_result":
		if k := c.answered(e, e.CustomUse); k != nil {
			if k.kind != "agent.custom_tool_use" {
				c.wrong(Asked, "a result of a client for %s", k.kind)
			}
			k.results, k.answer = k.results+1, "custom"
		}
	case "user.tool_confirmation":
		if k := c.answered(e, e.ToolUse); k != nil {
			if !k.ask {
				c.wrong(Asked, "%s was confirmed, and nobody asked", e.ToolUse)
			}
			k.answer = e.Result
		}
	case "session.status_idle":
		c.idle(e)
	}
}

// result is a result that the server gives.
func (c *checker) result(e *event, id, kind string) {
	k := c.calls[id]
	switch {
	case k == nil && c.partial:
		return
	case k == nil:
		c.wrong(Tools, "a result for %q, which is no call", id)
		return
	case k.kind != kind && !k.void: // a call that was interrupted is closed by whom it can be
		c.wrong(Tools, "%s for %s", e.Type, k.kind)
	case k.results > 0:
		c.wrong(Tools, "%s has a second result", id)
	case k.ask && k.answer == "" && !k.void:
		c.wrong(Asked, "%s has a result, and nobody allowed it", id)
	case k.answer == "deny" && !e.IsError:
		c.wrong(Asked, "%s was denied, and its result is no error", id)
	}
	k.results++
}

// answered is the call that an event answers, nil if there is none.
func (c *checker) answered(e *event, id string) *call {
	k := c.calls[id]
	switch {
	case k == nil && c.partial:
		return nil
	case k == nil:
		c.wrong(Asked, "%s for %q, which is no call", e.Type, id)
	case k.void:
		c.wrong(Interrupt, "%s for %s, which was interrupted", e.Type, id)
	case k.answer != "" || k.results > 0:
		c.wrong(Asked, "%s for %s, which was answered", e.Type, id)
	}
	return k
}

// idle compares what a session waits for with what is open.
func (c *checker) idle(e *event) {
	if c.span != "" {
		c.wrong(Spans, "the session is idle, and %s is open", c.span)
		c.span = ""
	}
	var open []string
	for _, id := range c.order {
		if c.calls[id].open() {
			open = append(open, id)
		}
	}
	s := e.stop()
	if s.Type == actionStop {
		c.action(open, s.EventIDs)
		return
	}
	if len(open) > 0 {
		c.wrong(Action, "the session stops with %s, and %v are open", s.Type, open)
	}
	if c.interrupted && s.Type != "end_turn" {
		c.wrong(Interrupt, "the interrupted turn stops with %s", s.Type)
	}
	c.interrupted = false
	for _, id := range c.order {
		k := c.calls[id]
		if k.results == 0 && !k.elsewhere && (!k.void || k.kind != "agent.custom_tool_use") {
			c.wrong(Tools, "the session stops with %s, and %s has no result", s.Type, id)
		}
	}
	c.order = nil // all is said of them
}

// action compares what is listed with what is open.
func (c *checker) action(open, listed []string) {
	known := slices.DeleteFunc(slices.Clone(listed), func(id string) bool { return c.calls[id] == nil && c.partial })
	if !same(open, known) || len(listed) == 0 {
		c.wrong(Action, "the session waits for %v, and %v are open", listed, open)
	}
}

// errors looks at what a session says of its failures.
func (c *checker) errors(e *event) {
	switch e.Type {
	case "session.error":
		if e.Error != nil && e.Error.Retry.Type == "exhausted" {
			c.exhausted = true
		}
	case "session.status_running":
		c.exhausted, c.ran = false, true
	case "session.status_idle":
		if stop := e.stop().Type; c.ran && (stop == "retries_exhausted") != c.exhausted {
			c.wrong(Errors, "the session stops with %s; retries were exhausted: %v", stop, c.exhausted)
		}
		c.exhausted = false
	}
}
