//go:build linux

package inside_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func usage(t testing.TB, l *runner.Link) runner.Usage {
	t.Helper()
	u, err := l.Usage(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUsageSaysWhatGoesOn(t *testing.T) {
	r, l := open(t)
	if u := usage(t, l); u.Ops+u.Tasks+u.Terminals != 0 || !u.Active.IsZero() {
		t.Errorf("before anything: %+v", u)
	}
	from := time.Now()
	task := runner.Call{Op: newOp(), Kind: dormouse.OpTask, Exec: &runner.Exec{Command: "sleep 1000"}}
	do(t, l, task)
	running := exec("while [ ! -e go ]; do sleep 0.01; done")
	start(t, l, running)
	stream(t, l, terminal("t", "cat"))
	u := usage(t, l)
	if u.Ops != 1 || u.Tasks != 1 || u.Terminals != 1 {
		t.Errorf("counted: %+v", u)
	}
	// The machine these tests run on is the runner's own process, so that only
	// what it started counts.
	if u.Processes < 3 || u.RSS < 3*4096 {
		t.Errorf("processes: %+v", u)
	}
	if u.Active.Before(from) {
		t.Errorf("active at %v, but an op runs since %v", u.Active, from)
	}
	writeFile(t, r.workspace+"/go", "")
	wait(t, l, running.Op)
	ended := time.Now()
	eventually(t, "the op is over", func() bool { return usage(t, l).Ops == 0 })
	quiet := usage(t, l).Active
	if again := usage(t, l); !again.Active.Equal(quiet) {
		t.Errorf("active at %v and %v, though nothing happened", quiet, again.Active)
	}

	c := stream(t, l, port(service(t, "127.0.0.1:0", loud)))
	types(t, c, "hello")
	_ = c.CloseWrite()
	shows(t, c, "HELLO")
	if u := usage(t, l); !u.Active.After(ended) {
		t.Errorf("active at %v, a port at %v", u.Active, ended)
	}
}

// Shells that wait for a command are told from what may change files by itself.
func TestUsageTellsIdleShellsFromWhatRuns(t *testing.T) {
	_, l := open(t)
	in := func(command string) {
		c := exec(command)
		c.Exec.Shell = "s"
		do(t, l, c)
	}
	in("true")
	eventually(t, "only an idle shell is there", func() bool {
		u := usage(t, l)
		return u.Shells == 1 && u.Processes == 1
	})
	in("sleep 1000 >/dev/null 2>&1 &")
	eventually(t, "a job of it is told from it", func() bool {
		u := usage(t, l)
		return u.Shells == 1 && u.Processes == 2
	})
}

func TestUsageCountsTheDead(t *testing.T) {
	_, l := open(t)
	before := usage(t, l).CPU
	do(t, l, exec("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
	if after := usage(t, l).CPU; after <= before {
		t.Errorf("CPU went from %v to %v", before, after)
	}
}
