//go:build darwin

package proctree

import (
	"bytes"
	"testing"
)

func TestArgumentsAndEnvironmentAreToldApart(t *testing.T) {
	args, env := splitArguments([]byte("\x02\x00\x00\x00/bin/echo\x00\x00\x00\x00echo\x00hello\x00A=1\x00B=2\x00\x00executable_path=/bin/echo\x00"))
	if got := string(bytes.Join(args, []byte("|"))); got != "echo|hello" {
		t.Errorf("arguments %q", got)
	}
	if got := string(bytes.Join(env, []byte("|"))); got != "A=1|B=2" {
		t.Errorf("environment %q", got)
	}
	if args, env := splitArguments([]byte("\x09\x00\x00\x00x")); len(args) > 9 || len(env) != 0 {
		t.Errorf("of too little: %q, %q", args, env)
	}
}

func TestOrphansStayDescendants(t *testing.T) {
	at := func(pid, parent, session int) Process {
		return Process{PID: pid, Parent: parent, Session: session, start: uint64(pid)} //nolint:gosec // small
	}
	known := descendants(10, nil, []Process{at(10, 1, 10), at(11, 10, 11), at(12, 11, 11), at(20, 1, 20)})
	if len(known) != 2 {
		t.Fatalf("found %v", known)
	}
	// 11 ended: 12 is launchd's child now, and has started 13 in its session and 14 in
	// another.
	known = descendants(10, known, []Process{at(10, 1, 10), at(12, 1, 11), at(13, 1, 11), at(14, 12, 14), at(20, 1, 20)})
	for _, pid := range []int{12, 13, 14} {
		if _, ok := known[pid]; !ok {
			t.Errorf("%d was lost: %v", pid, known)
		}
	}
	if _, ok := known[20]; ok {
		t.Error("a stranger is ours")
	}
}
