package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Report is what was seen of a server. It may be written by many at once.
type Report struct {
	mu    sync.Mutex
	count counts // guarded by mu
}

// counts is what a report keeps.
type counts struct {
	// Replies counts answers by operation and status.
	Replies map[string]map[int]int `json:"replies"`
	// Events counts events by type, and Sent those that clients sent and a server
	// took.
	Events map[string]int `json:"events"`
	Sent   map[string]int `json:"sent"`
	// Frames counts what streams carried, Cut the answers that broke off.
	Frames int `json:"frames"`
	Cut    int `json:"cut"`
	// Violations says what was not as described, each once.
	Violations []string `json:"violations"`
	Wrong      int      `json:"wrong"`
}

// NewReport returns a report of nothing.
func NewReport() *Report {
	return &Report{count: counts{Replies: make(map[string]map[int]int), Events: make(map[string]int), Sent: make(map[string]int)}}
}

// most bounds how many violations are told.
const most = 200

func (r *Report) with(f func(*counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.count)
}

// Violation notes something that is not as described.
func (r *Report) Violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.with(func(c *counts) {
		c.Wrong++
		if len(c.Violations) < most && !slices.Contains(c.Violations, text) {
			c.Violations = append(c.Violations, text)
		}
	})
}

// reply counts an answer.
func (r *Report) reply(op string, status int) {
	r.with(func(c *counts) {
		if c.Replies[op] == nil {
			c.Replies[op] = make(map[int]int)
		}
		c.Replies[op][status]++
	})
}

// event counts an event that was shown, sent one that was taken.
func (r *Report) event(kind string) { r.with(func(c *counts) { c.Events[kind]++ }) }
func (r *Report) sent(kind string)  { r.with(func(c *counts) { c.Sent[kind]++ }) }

// Violations says what was not as described.
func (r *Report) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.count.Violations)
}

// Wrong counts what was not as described.
func (r *Report) Wrong() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count.Wrong
}

// Served reports whether an operation was answered with success.
func (r *Report) Served(op string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for status := range r.count.Replies[op] {
		if status < 300 {
			return true
		}
	}
	return false
}

// Seen counts the events of a type that were shown.
func (r *Report) Seen(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count.Events[kind]
}

// Add adds what another report has.
func (r *Report) Add(other *Report) {
	other.mu.Lock()
	o := other.count
	defer other.mu.Unlock()
	r.with(func(c *counts) {
		for op, by := range o.Replies {
			if c.Replies[op] == nil {
				c.Replies[op] = make(map[int]int)
			}
			for status, n := range by {
				c.Replies[op][status] += n
			}
		}
		for k, n := range o.Events {
			c.Events[k] += n
		}
		for k, n := range o.Sent {
			c.Sent[k] += n
		}
		c.Frames, c.Cut, c.Wrong = c.Frames+o.Frames, c.Cut+o.Cut, c.Wrong+o.Wrong
		for _, v := range o.Violations {
			if len(c.Violations) < most && !slices.Contains(c.Violations, v) {
				c.Violations = append(c.Violations, v)
			}
		}
	})
}

// String is the line that a run ends with.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	replies := 0
	for _, by := range r.count.Replies {
		for _, n := range by {
			replies += n
		}
	}
	return fmt.Sprintf("schema: routes=%d replies=%d frames=%d events=%d violations=%d",
		len(r.count.Replies), replies, r.count.Frames, len(r.count.Events), r.count.Wrong)
}

// Routes lists the operations that were answered, with their statuses.
func (r *Report) Routes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, op := range slices.Sorted(maps.Keys(r.count.Replies)) {
		fmt.Fprintf(&b, "%s:", op)
		for _, status := range slices.Sorted(maps.Keys(r.count.Replies[op])) {
			fmt.Fprintf(&b, " %d×%d", r.count.Replies[op][status], status)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Save writes the report to a file, for programs that add several up.
func (r *Report) Save(path string) error {
	r.mu.Lock()
	b, err := json.Marshal(r.count)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// Read reads a report that was saved.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := NewReport()
	if err := json.Unmarshal(b, &r.count); err != nil {
		return nil, fmt.Errorf("read the report %s: %w", path, err)
	}
	return r, nil
}
