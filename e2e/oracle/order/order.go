// Package order checks whether the events of a session came in an order that
// the Managed Agents API allows: as its log lists them, and as a connection
// that followed it saw them. It uses nothing but the events.
package order

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rule names what must hold.
type Rule string

// The rules.
const (
	Shape     Rule = "shape"     // an event is an object with a type, and an id if it is stored
	Unique    Rule = "unique"    // no id comes twice, except queued and then processed
	Queued    Rule = "queued"    // only what clients send waits, and a log lists it last
	Time      Rule = "time"      // processed_at is a time in UTC and never goes back
	Status    Rule = "status"    // a session and a thread go only where they can
	Pairing   Rule = "pairing"   // a session runs if and only if a thread of it does
	Primary   Rule = "primary"   // the first thread status is the primary's
	Usage     Rule = "usage"     // session.usage stands right before session.status_idle, and nowhere else
	Cause     Rule = "cause"     // a session runs because a client sent something
	Working   Rule = "working"   // an agent does nothing while its session is idle
	Spans     Rule = "spans"     // model requests begin and end, one at a time, and what a model said is inside
	Tools     Rule = "tools"     // a call has one result, and a result has a call
	Asked     Rule = "asked"     // a question is answered once, and nothing runs before
	Action    Rule = "action"    // requires_action lists exactly what is open
	Interrupt Rule = "interrupt" // what was interrupted goes no further
	Errors    Rule = "errors"    // retries that are exhausted end the turn, and the turn says so
	Ended     Rule = "ended"     // nothing comes after the end
	Previews  Rule = "previews"  // a preview starts once, is a prefix of its event, and ends with it
	Gap       Rule = "gap"       // what was followed is a piece of the log
)

// Rules lists them all.
func Rules() []Rule {
	return []Rule{
		Shape, Unique, Queued, Time, Status, Pairing, Primary, Usage, Cause, Working, Spans, Tools, Asked, Action,
		Interrupt, Errors, Ended, Previews, Gap,
	}
}

// Finding is a rule that does not hold, and where.
type Finding struct {
	Rule Rule
	// At counts the events from 0.
	At   int
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s at %d: %s", f.Rule, f.At, f.Text) }

// Format writes findings for people, with the events around each.
func Format(found []Finding, events []json.RawMessage) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s\n", f)
		for i := max(0, f.At-3); i < min(len(events), f.At+3); i++ {
			fmt.Fprintf(&b, "  %d %s\n", i, events[i])
		}
	}
	return b.String()
}

// Log looks at a whole log, oldest first, as it is listed.
func Log(events []json.RawMessage) []Finding {
	c := newChecker(false)
	c.all(events)
	c.finish(len(events))
	return c.found
}

// Stream looks at what one connection saw, which begins and ends anywhere.
// previews are the types whose previews it asked for.
func Stream(events []json.RawMessage, previews []string) []Finding {
	c := newChecker(true)
	c.previews = previews
	c.all(events)
	return c.found
}

// event is what the rules look at.
type event struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// ProcessedAt is nil while the event waits.
	ProcessedAt *string `json:"processed_at"`

	Thread     string `json:"session_thread_id"`
	StopReason *stop  `json:"stop_reason"`

	ToolUse    string `json:"tool_use_id"`
	MCPToolUse string `json:"mcp_tool_use_id"`
	CustomUse  string `json:"custom_tool_use_id"`
	Permission string `json:"evaluated_permission"`
	Result     string `json:"result"`
	IsError    bool   `json:"is_error"`
	SpanStart  string `json:"model_request_start_id"`

	Content []block `json:"content"`
	Error   *struct {
		Type  string `json:"type"`
		Retry struct {
			Type string `json:"type"`
		} `json:"retry_status"`
	} `json:"error"`

	// Of previews.
	Event *struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	} `json:"event"`
	EventID string `json:"event_id"`
	Delta   *struct {
		Index   int   `json:"index"`
		Content block `json:"content"`
	} `json:"delta"`
}

type stop struct {
	Type     string   `json:"type"`
	EventIDs []string `json:"event_ids"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// preview reports whether the event is one that is never stored.
func (e *event) preview() bool { return e.Type == "event_start" || e.Type == "event_delta" }

// sent reports whether clients send such events.
func (e *event) sent() bool { return strings.HasPrefix(e.Type, "user.") || e.Type == "system.message" }

// waits reports whether such an event may wait to be processed.
func (e *event) waits() bool {
	switch e.Type {
	case "user.message", "user.interrupt", "user.tool_confirmation", "system.message":
		return true
	}
	return false
}

// checker holds what is known after the events so far.
type checker struct {
	partial  bool     // what came before is not known
	previews []string // asked for
	found    []Finding
	at       int

	ids    map[string]*event // the latest of each id
	last   time.Time
	queued int // where the first that waits stands, -1 if none
	before string

	session *life
	threads map[string]*life
	created map[string]bool // threads that the primary made
	primary string          // the thread whose status came first
	pending string          // a thread status that must come next
	caused  bool

	span        string // the open model request
	seenSpan    bool
	calls       map[string]*call
	order       []string // of calls
	interrupted bool
	exhausted   bool
	ran         bool   // it was seen to start to run
	ended       string // the type that ended it

	starts map[string]*shown
}

func newChecker(partial bool) *checker {
	return &checker{
		partial: partial, queued: -1, ids: make(map[string]*event), threads: make(map[string]*life), created: make(map[string]bool),
		session: newLife(partial), calls: make(map[string]*call), starts: make(map[string]*shown),
	}
}

// wrong notes a finding at the event that is looked at.
func (c *checker) wrong(r Rule, format string, args ...any) {
	c.found = append(c.found, Finding{Rule: r, At: c.at, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) all(events []json.RawMessage) {
	for i, raw := range events {
		c.at = i
		e := new(event)
		if err := json.Unmarshal(raw, e); err != nil {
			c.wrong(Shape, "not an event: %v", err)
			continue
		}
		c.see(e)
	}
}

// see holds one event against every rule.
func (c *checker) see(e *event) {
	if !c.shape(e) {
		return
	}
	c.end(e)
	if e.preview() {
		c.preview(e)
		return
	}
	fresh := c.unique(e)
	c.clock(e)
	c.neighbours(e)
	if e.ProcessedAt == nil && e.sent() { // it has only been accepted
		return
	}
	if !fresh {
		return
	}
	c.status(e)
	c.work(e)
	c.tools(e)
	c.errors(e)
	c.whole(e)
	if e.sent() {
		c.caused = true
	}
}

// shape looks at what every event has.
func (c *checker) shape(e *event) bool {
	switch {
	case e.Type == "":
		c.wrong(Shape, "an event without a type")
	case e.preview() && e.ID != "":
		c.wrong(Shape, "%s has an id of its own", e.Type)
	case e.preview() && !c.partial:
		c.wrong(Shape, "%s is stored", e.Type)
	case !e.preview() && e.ID == "":
		c.wrong(Shape, "%s without an id", e.Type)
	default:
		return true
	}
	return false
}

// end looks at what comes after the end.
func (c *checker) end(e *event) {
	if c.ended == "session.deleted" || (c.ended != "" && e.Type != "session.deleted") {
		c.wrong(Ended, "%s after %s", e.Type, c.ended)
	}
	switch e.Type {
	case "session.status_terminated", "session.deleted":
		c.ended = e.Type
	}
}

// unique looks at the event's id and reports whether it says something new.
func (c *checker) unique(e *event) bool {
	old := c.ids[e.ID]
	c.ids[e.ID] = e
	if old == nil {
		return true
	}
	switch {
	case !c.partial:
		c.wrong(Unique, "%s is in the log twice", e.ID)
	case old.Type != e.Type || !e.waits():
		c.wrong(Unique, "%s came as %s and as %s", e.ID, old.Type, e.Type)
	case old.ProcessedAt != nil || e.ProcessedAt == nil:
		c.wrong(Unique, "%s came again and was not processed in between", e.ID)
	default:
		return true
	}
	return false
}

// clock looks at when the event was processed.
func (c *checker) clock(e *event) {
	if e.ProcessedAt == nil {
		if !e.waits() {
			c.wrong(Queued, "%s cannot wait", e.Type)
		}
		if c.queued < 0 {
			c.queued = c.at
		}
		return
	}
	if c.queued >= 0 && !c.partial {
		c.wrong(Queued, "%s is processed, and listed after what waits since %d", e.ID, c.queued)
		c.queued = -1 // say it once
	}
	t, err := time.Parse(time.RFC3339Nano, *e.ProcessedAt)
	switch {
	case err != nil:
		c.wrong(Time, "%v", err)
	case !strings.HasSuffix(*e.ProcessedAt, "Z"):
		c.wrong(Time, "%s is not in UTC", *e.ProcessedAt)
	case t.Before(c.last):
		c.wrong(Time, "%s is before %s", *e.ProcessedAt, c.last.Format(time.RFC3339Nano))
	default:
		c.last = t
	}
}

// neighbours looks at what must stand right before or after.
func (c *checker) neighbours(e *event) {
	switch {
	case e.Type == "session.status_idle" && c.before != "session.usage" && (c.before != "" || !c.partial):
		c.wrong(Usage, "session.status_idle after %s", c.before)
	case e.Type != "session.status_idle" && c.before == "session.usage":
		c.wrong(Usage, "%s after session.usage", e.Type)
	}
	if c.pending != "" && c.pending != e.Type {
		c.wrong(Pairing, "%s where %s must be", e.Type, c.pending)
	}
	c.pending = ""
	c.before = e.Type
}

// finish looks at the end of a whole log.
func (c *checker) finish(n int) {
	c.at = max(0, n-1)
	if c.before == "session.usage" {
		c.wrong(Usage, "the log ends with session.usage")
	}
	if c.pending != "" {
		c.wrong(Pairing, "the log ends where %s must be", c.pending)
	}
	if l := c.threads[c.primary]; l != nil && l.status == terminated && c.session.status != terminated {
		c.wrong(Pairing, "the primary thread is terminated, the session is %s", c.session.status)
	}
}

// same reports whether two lists hold the same, in any order.
func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
