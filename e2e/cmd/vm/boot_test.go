package main

import (
	"io"
	"strings"
	"testing"
)

func TestReportCountsWhatTheMachineSays(t *testing.T) {
	const doctor, demo = "vm-step: doctor 0 9\n", "vm-step: demo 0 80\n"
	const limits = "=== RUN   TestA\n--- PASS: TestA (1.00s)\n    --- PASS: TestA/sub (0.50s)\r\n--- PASS: TestB (2.00s)\nvm-step: limits 0 99\n"
	const wall = "wall: cases=20 broke=0\nvm-step: wall 0 500\n"
	for name, c := range map[string]struct {
		said, last string
		fails      bool
	}{
		"all is well":             {doctor + demo + limits + wall, "cases=24 failed=0", false},
		"doctor finds something":  {"vm-step: doctor 1 9\n" + demo + limits + wall, "cases=24 failed=1", true},
		"a test fails":            {doctor + demo + "--- FAIL: TestA (1.00s)\nvm-step: limits 1 99\n" + wall, "cases=23 failed=1", true},
		"a test is skipped":       {doctor + demo + "--- SKIP: TestA (1.00s)\nvm-step: limits 0 99\n" + wall, "cases=23 failed=1", true},
		"the tests panic":         {doctor + demo + "panic: no\nvm-step: limits 2 99\n" + wall, "cases=23 failed=1", true},
		"no test runs":            {doctor + demo + "vm-step: limits 0 1\n" + wall, "cases=23 failed=1", true},
		"cases of the wall break": {doctor + demo + limits + "wall: cases=20 broke=3\nvm-step: wall 1 500\n", "cases=24 failed=3", true},
		"there is no wall":        {doctor + demo + limits + "attacks: -section: there is no \"wall\"\nvm-step: wall 1 1\n", "cases=5 failed=1", true},
		"a step is missing":       {doctor + demo + wall, "cases=22 failed=0", true},
		"a line cannot be read":   {doctor + demo + limits + wall + "vm-step: what\n", "cases=24 failed=0", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report{steps: steps}
			err := r.read(strings.NewReader("vm-kernel: 6.1\nvm-cgroup: 2\n"+c.said+"vm-done\n"), io.Discard)
			if err == nil {
				err = r.verdict()
			}
			if want := "vm: kernel=6.1 cgroup=2 " + c.last; r.String() != want {
				t.Errorf("it says %q, want %q", r, want)
			}
			if (err != nil) != c.fails {
				t.Errorf("verdict: %v", err)
			}
		})
	}
}

func TestReportOfAnotherCgroupFails(t *testing.T) {
	r := &report{steps: []string{"doctor"}}
	if err := r.read(strings.NewReader("vm-cgroup: 1\nvm-step: doctor 0 9\nvm-done\n"), io.Discard); err != nil {
		t.Fatal(err)
	}
	if r.verdict() == nil {
		t.Error("a machine with cgroup v1 is as good")
	}
}
