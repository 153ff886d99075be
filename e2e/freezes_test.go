package e2e

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/chaos/matrix"
)

// A server that hangs for good with a session's lock, in each call that is made to a
// sandbox from outside, is ended by the other one: the session is served within the lease
// plus ten seconds of the freeze's beginning. "make freezes" plays all cases.
func TestAServerThatHangsHoldsNobodyUp(t *testing.T) {
	var said strings.Builder
	var cases []matrix.Case
	for _, name := range []string{"stop-held", "capture-held", "remove-held"} {
		cases = append(cases, matrix.Freezes("local", name)...)
	}
	s, err := matrix.RunFreezes(t.Context(), matrix.Config{Binary: crashing(t), Seed: 1, Out: &said}, cases)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Failed) > 0 || s.Cases != len(cases) {
		t.Errorf("%s; not frozen: %v\n%s", s, s.Unreached, said.String())
	}
}
