package contract

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// known lists the tests that fail, and why, as it is known.
//
//go:embed gaps.txt
var known string

// Gaps lists the tests that failed, one line each.
func Gaps(all []Outcome) string {
	var lines []string
	for _, o := range all {
		if !o.Passed() {
			lines = append(lines, o.String()+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Compare says what is not as it is known: what fails now, what fails for another
// reason, and what no longer fails.
func Compare(all []Outcome) []string { return compare(known, all) }

func compare(known string, all []Outcome) []string {
	expected, seen := parse(known), parse(Gaps(all))
	var wrong []string
	for _, o := range all {
		was, now := expected[o.Test], seen[o.Test]
		switch {
		case was == now:
		case was == "":
			wrong = append(wrong, fmt.Sprintf("%s fails: %s", o.Test, now))
		case now == "":
			wrong = append(wrong, fmt.Sprintf("%s no longer fails; take it off gaps.txt", o.Test))
		default:
			wrong = append(wrong, fmt.Sprintf("%s fails for another reason: %s", o.Test, now))
		}
		delete(expected, o.Test)
	}
	for test := range expected {
		wrong = append(wrong, test+" is in gaps.txt and did not run")
	}
	slices.Sort(wrong)
	return wrong
}

func parse(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		test, why, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok {
			all[test] = why
		}
	}
	return all
}

// ours are the resources that are served. A longer name is another resource, of
// those that are listed.
var ours = []string{"agent", "agentversion", "environment", "session", "sessionevent", "sessionthread", "sessionthreadevent", "model"}

// Refused are the tests of what is served that fail.
func Refused(all []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(all), func(o Outcome) bool { return o.Passed() || !o.served() })
}

// served reports whether a test is of a resource that is.
func (o Outcome) served() bool {
	name := strings.ToLower(strings.TrimPrefix(o.Test, "TestBeta"))
	of := ""
	for _, r := range resources {
		if strings.HasPrefix(name, r) && len(r) > len(of) {
			of = r
		}
	}
	return slices.Contains(ours, of)
}

// Summary is the lines that a run ends with: of what is served, and of the rest.
func Summary(all []Outcome) []string {
	var own, rest counts
	for _, o := range all {
		if o.served() {
			own.add(o)
		} else {
			rest.add(o)
		}
	}
	return []string{"contract: " + own.String(), "contract of the rest: " + rest.String()}
}

// counts is how many tests there are, and how many of them passed.
type counts struct{ run, passed int }

func (c *counts) add(o Outcome) {
	c.run++
	if o.Passed() {
		c.passed++
	}
}

func (c *counts) String() string {
	return fmt.Sprintf("run=%d passed=%d gaps=%d", c.run, c.passed, c.run-c.passed)
}
