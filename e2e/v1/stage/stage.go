// Package stage is the environment of a program with an official SDK: a server, a
// key, and a name that separates what the program makes from what others make.
package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// Stage is all that a program is told.
type Stage struct {
	// URL and Key are those of the server.
	URL, Key string
	// Name is one of its own, in small letters.
	Name string
}

// Script is a message that tells the model what to say.
func (s Stage) Script(steps ...rig.Step) string { return rig.Script(s.Name, steps...) }

// Program is one use of the API by an application. It returns what was wrong.
type Program struct {
	Name string
	Run  func(ctx context.Context, s Stage) error
}

// Keys is the program that names its requests, which may be cut off anywhere.
const Keys = "keys"

// Untold are crash points at which a server has created the program's session, or has
// accepted its message, and has not sent the response.
func Untold() []rig.Arm {
	return []rig.Arm{
		{Point: crash.PromptAnswered, Visit: 1}, {Point: crash.PromptAnswered, Visit: 2}, {Point: crash.PromptCommitted, Visit: 1},
	}
}

// Reader collects what a program saw of a session, by the reconnect rule: what
// comes twice is taken once.
type Reader struct {
	IDs  []string
	seen map[string]bool
}

// Take notes an event that is stored and processed, and reports whether it is
// new.
func (r *Reader) Take(id string, processed bool) bool {
	if r.seen == nil {
		r.seen = make(map[string]bool)
	}
	if id == "" || !processed || r.seen[id] {
		return false
	}
	r.seen[id] = true
	r.IDs = append(r.IDs, id)
	return true
}

// Same compares what was seen with what is listed.
func Same(what string, got, want []string) error {
	if slices.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, " "), strings.Join(want, " "))
}
