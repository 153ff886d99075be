package contract

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const said = `=== RUN   TestBetaOne
--- PASS: TestBetaOne (0.00s)
=== RUN   TestBetaTwo
    two_test.go:3: err should be nil: GET "http://x/v1/agents/agent_01A?beta=true": 404 Not Found (Request-ID: req_9) {"type":"error","error":{"type":"not_found_error","message":"no agent agent_01A"},"request_id":"req_9"}
--- FAIL: TestBetaTwo (0.00s)
=== RUN   TestBetaThree
    three_test.go:3: err should be nil: connection refused
--- FAIL: TestBetaThree (0.00s)
=== RUN   TestBetaFour
--- FAIL: TestBetaFour (0.00s)
=== RUN   TestBetaFive
--- SKIP: TestBetaFive (0.00s)
FAIL
`

func TestWhatTheTestsSayIsRead(t *testing.T) {
	want := []Outcome{
		{Test: "TestBetaOne"},
		{Test: "TestBetaTwo", Why: "404 Not Found: not_found_error: no agent agent…"},
		{Test: "TestBetaThree", Why: "connection refused"},
		{Test: "TestBetaFour", Why: "it did not say why"},
		{Test: "TestBetaFive", Why: "skipped"},
	}
	got := read([]byte(said))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsServedIsCountedApart(t *testing.T) {
	all := []Outcome{
		{Test: "TestBetaAgentNewWithOptionalParams"},
		{Test: "TestBetaAgentVersionListWithOptionalParams"},
		{Test: "TestBetaModelGetWithOptionalParams"},
		{Test: "TestBetaSessionThreadEventListWithOptionalParams"},
		{Test: "TestBetaSessionUpdateWithOptionalParams", Why: "no"},
		{Test: "TestBetaSessionResourceListWithOptionalParams"},
		{Test: "TestBetaEnvironmentWorkAckWithOptionalParams", Why: "no"},
		{Test: "TestBetaVaultNew", Why: "no"},
	}
	want := []string{"contract: run=5 passed=4 gaps=1", "contract of the rest: run=3 passed=1 gaps=2"}
	if diff := cmp.Diff(want, Summary(all)); diff != "" {
		t.Error(diff)
	}
	if got := Refused(all); len(got) != 1 || got[0].Test != "TestBetaSessionUpdateWithOptionalParams" {
		t.Errorf("refused of what is served: %v", got)
	}
}

func TestEveryChangeOfTheGapsIsNoticed(t *testing.T) {
	was := []Outcome{{Test: "A", Why: "x"}, {Test: "B", Why: "y"}, {Test: "C"}}
	if wrong := compare(Gaps(was), was); len(wrong) > 0 {
		t.Errorf("nothing has changed: %v", wrong)
	}
	for name, now := range map[string][]Outcome{
		"one more":       {{Test: "A", Why: "x"}, {Test: "B", Why: "y"}, {Test: "C", Why: "z"}},
		"one less":       {{Test: "A", Why: "x"}, {Test: "B"}, {Test: "C"}},
		"another reason": {{Test: "A", Why: "x"}, {Test: "B", Why: "z"}, {Test: "C"}},
		"one is missing": {{Test: "A", Why: "x"}, {Test: "C"}},
	} {
		if wrong := compare(Gaps(was), now); len(wrong) != 1 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}
