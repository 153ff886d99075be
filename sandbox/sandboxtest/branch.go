package sandboxtest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// branches makes sessions that begin with what runs in another.
func branches(t *testing.T, w *world) {
	l := w.chain(t)
	brancher, ok := l.Driver.(sandbox.Brancher)
	freezer, freezes := l.Driver.(sandbox.Freezer)
	if !ok || !freezes {
		t.Skip("what runs in sandboxes of this driver cannot be taken along")
	}
	if err := brancher.Branch(within(t), l.session, 1, l.session+"b"); !errors.Is(err, sandbox.ErrNoMemoryImage) {
		t.Errorf("of a session that never had a sandbox: %v", err)
	}
	s := l.start(t, 1)
	do(t, s, runner.Call{Op: l.op(), Kind: dormouse.OpTask, Exec: &runner.Exec{
		Command: "n=1000; while :; do n=$((n+1)); echo $n $(cat /proc/sys/kernel/random/uuid) >>/tmp/beats; sleep 0.02; done",
	}})
	shell := func(s sandbox.Sandbox, command string) string {
		t.Helper()
		c := l.exec(command)
		c.Exec.Shell = "main"
		return strings.TrimSpace(string(do(t, s, c).Output))
	}
	shell(s, "echo 1 >kept; echo home >~/kept; cd /usr; here=there")
	eventually(t, "it runs", func() bool { return l.count(t, s, "/tmp/beats") > 2 })
	if err := brancher.Branch(within(t), l.session, 1, l.session+"b"); !errors.Is(err, sandbox.ErrNoMemoryImage) {
		t.Errorf("of a session that is awake: %v", err)
	}
	if err := errors.Join(s.Close(), freezer.Freeze(within(t), s.Handle(), l.fence(1, 1))); err != nil {
		t.Fatal(err)
	}
	l.snapshot(t, nil, 1, "", "snap_1")
	if err := brancher.Branch(within(t), l.session, 2, l.session+"b"); !errors.Is(err, sandbox.ErrNoMemoryImage) {
		t.Errorf("of a generation that it has not had: %v", err)
	}
	all := []*chain{l}
	for _, name := range []dormouse.SessionID{"b", "c"} {
		b := *l
		b.world = &world{Harness: l.Harness, session: l.session + name}
		for range 2 { // twice is once
			if err := brancher.Branch(within(t), l.session, 1, b.session); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, &b)
	}
	seen := make(map[string]dormouse.SessionID)
	var shared string
	for i, b := range all {
		generation := uint64(2)
		b.over("snap_1")
		if b.now.Sealed = true; i > 0 {
			generation, b.now.Number = 1, 1
		}
		s := b.start(t, generation)
		if p := s.(sandbox.Restored).Processes(); !p.Kept {
			t.Fatalf("%s: %+v", b.session, p)
		}
		if got := shell(s, "echo $here $PWD $(cat /workspace/kept ~/kept)"); got != "there /usr 1 home" {
			t.Errorf("%s: its shell says %q", b.session, got)
		}
		before := b.count(t, s, "/tmp/beats")
		eventually(t, "it runs on", func() bool { return b.count(t, s, "/tmp/beats") > before+2 })
		if got := b.sh(t, s, "cut -d' ' -f1 /tmp/beats | sort | uniq -d"); got != "" {
			t.Errorf("%s counted twice: %s", b.session, got)
		}
		lines := strings.Split(b.sh(t, s, "cut -d' ' -f2 /tmp/beats"), "\n")
		if shared == "" {
			shared = lines[0]
		}
		if lines[0] != shared {
			t.Errorf("%s has another past", b.session)
		}
		for _, id := range lines[before:] {
			if whose, ok := seen[id]; ok {
				t.Errorf("%s and %s drew the same: %s", b.session, whose, id)
			}
			seen[id] = b.session
		}
		b.sh(t, s, "echo "+string(b.session)+" >>/workspace/kept; echo "+string(b.session)+" >>~/kept")
	}
	for _, b := range all[1:] {
		if err := l.Driver.Remove(within(t), b.fence(math.MaxUint32, 1)); err != nil {
			t.Errorf("remove %s: %v", b.session, err)
		}
	}
}
