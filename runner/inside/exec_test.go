//go:build linux

package inside_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestCommandRunsAndSaysHowItEnded(t *testing.T) {
	r, l := open(t)
	for _, test := range []struct {
		name, command string
		want          runner.Result
	}{
		{"prints", "echo out; echo err >&2", runner.Result{Output: []byte("out\nerr\n")}},
		{"starts in the workspace", "pwd", runner.Result{Output: []byte(r.workspace + "\n")}},
		{"fails", "exit 3", runner.Result{Exit: 3}},
		{"dies by a signal", "kill -USR1 $$", runner.Result{Exit: 128 + int(syscall.SIGUSR1)}},
		{"reads nothing", "cat; echo end", runner.Result{Output: []byte("end\n")}},
		{"prints anything", `printf '\000\377'`, runner.Result{Output: []byte{0, 0xff}}},
		{"is not found", "/nowhere 2>/dev/null", runner.Result{Exit: 127}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, do(t, l, exec(test.command))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommandSeesNothingOfTheServersEnvironment(t *testing.T) {
	t.Setenv("DORMOUSE_TEST_SECRET", "hush")
	_, l := open(t)
	if out := string(do(t, l, exec("env")).Output); strings.Contains(out, "hush") {
		t.Errorf("environment of a command:\n%s", out)
	}
}

func TestCommandThatCannotStartSaysWhy(t *testing.T) {
	r, l := open(t)
	if res := do(t, l, exec("true "+strings.Repeat("x", 1<<20))); res.Error == "" || res.Exit == 0 {
		t.Errorf("command too long for the kernel: %+v", res)
	}
	if err := os.Remove(r.workspace); err != nil {
		t.Fatal(err)
	}
	if res := do(t, l, exec("true")); res.Error == "" || res.Exit == 0 {
		t.Errorf("command without a workspace: %+v", res)
	}
}

func TestLongOutputIsKeptAsHeadAndTail(t *testing.T) {
	_, l := open(t)
	const total = 10 << 20
	res := do(t, l, exec("printf head; head -c 10485752 /dev/zero; printf tail"))
	if len(res.Output) != runner.KeptHead+runner.KeptTail || res.Omitted != total-int64(len(res.Output)) {
		t.Fatalf("kept %d and omitted %d of %d", len(res.Output), res.Omitted, total)
	}
	if !bytes.HasPrefix(res.Output, []byte("head")) || !bytes.HasSuffix(res.Output, []byte("tail")) {
		t.Error("head or tail is missing")
	}
	if again, err := l.Ask(deadline(t), "op_none"); err != nil || again.State != runner.NeverSeen {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
}

func TestHeadAndTailAreInOrder(t *testing.T) {
	_, l := open(t)
	// 400,000 lines of 8 bytes: more than is kept, and the ring turns.
	res := do(t, l, exec("seq -f %07.0f 1 400000"))
	head, tail := res.Output[:runner.KeptHead], res.Output[runner.KeptHead:]
	if !bytes.HasPrefix(head, []byte("0000001\n0000002\n")) || !bytes.HasSuffix(tail, []byte("0399999\n0400000\n")) {
		t.Fatalf("head %q…, tail …%q", head[:16], tail[len(tail)-16:])
	}
	lines := strings.Fields(string(tail))
	for i := 1; i < len(lines)-1; i++ {
		a, _ := strconv.Atoi(lines[i])
		b, _ := strconv.Atoi(lines[i+1])
		if b != a+1 {
			t.Fatalf("line %d is followed by %d", a, b)
		}
	}
}

func TestOutputIsSeenWhileTheCommandRuns(t *testing.T) {
	r, l := open(t)
	c := exec("until [ -e go ]; do echo tick; sleep 0.01; done; echo late")
	start(t, l, c)
	var seen bytes.Buffer
	res, err := l.Wait(deadline(t), c.Op, func(b []byte) {
		seen.Write(b)
		writeFile(t, r.workspace+"/go", "") // the command ends only if it is seen running
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(seen.Bytes(), []byte("late\n")) || !bytes.HasSuffix(res.Output, seen.Bytes()) {
		t.Errorf("seen %q of %q", seen.Bytes(), res.Output)
	}
}

func TestTimeoutEndsEverythingTheCommandStarted(t *testing.T) {
	r, l := open(t)
	command := `trap '' TERM
		(setsid bash -c 'trap "" TERM; (while :; do echo x >>beats; sleep 0.01; done) & disown' &)
		while :; do sleep 0.01; done`
	// A machine that is too busy to start the child in time gets more of it.
	for timeout := 300 * time.Millisecond; r.lines(t, "beats") == 0; timeout *= 2 {
		if timeout > 20*time.Second {
			t.Fatal("the child never ran")
		}
		c := exec(command)
		c.Exec.Timeout = timeout
		res := do(t, l, c)
		if !res.TimedOut || res.Exit < 128 {
			t.Errorf("result: %+v", res)
		}
		if r.lines(t, "beats") > 0 && res.Exit != 128+int(syscall.SIGKILL) {
			t.Errorf("what does not listen to TERM ended with %d", res.Exit)
		}
	}
	r.settled(t, "beats")
}

func TestKillEndsARunningOpAndEverythingItStarted(t *testing.T) {
	r, l := open(t)
	c := exec("(setsid bash -c 'while :; do echo x >>beats; sleep 0.01; done' &) ; sleep 1000")
	start(t, l, c)
	eventually(t, "the child runs", func() bool { return r.lines(t, "beats") > 0 })
	if err := l.Kill(deadline(t), c.Op); err != nil {
		t.Fatal(err)
	}
	r.settled(t, "beats")
	if res := wait(t, l, c.Op); !res.Killed || res.TimedOut || res.Exit != 128+int(syscall.SIGTERM) {
		t.Errorf("result: %+v", res)
	}
}

func TestKillLeavesAloneWhatIsOverOrWasNeverSeen(t *testing.T) {
	r, l := open(t)
	c := exec("(while [ ! -e stop ]; do echo x >>beats; sleep 0.01; done) & echo done")
	want := do(t, l, c)
	if err := errors.Join(l.Kill(deadline(t), c.Op), l.Kill(deadline(t), newOp())); err != nil {
		t.Fatal(err)
	}
	before := r.lines(t, "beats")
	eventually(t, "what it left running goes on", func() bool { return r.lines(t, "beats") > before })
	if diff := cmp.Diff(want, wait(t, l, c.Op)); diff != "" {
		t.Errorf("result changed:\n%s", diff)
	}
	writeFile(t, r.workspace+"/stop", "")
}

func TestBackgroundChildNeitherHoldsTheOpNorDiesOfItsPipe(t *testing.T) {
	r, l := open(t)
	began := time.Now()
	res := do(t, l, exec("(while [ ! -e stop ]; do echo noise; echo x >>beats; sleep 0.01; done) & echo done"))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.Contains(string(res.Output), "done\n") || res.Exit != 0 {
		t.Errorf("result: %+v", res)
	}
	before := r.lines(t, "beats")
	eventually(t, "the child goes on", func() bool { return r.lines(t, "beats") > before+5 })
	writeFile(t, r.workspace+"/stop", "")
}

func TestTaskLivesOnAndItsLogIsBounded(t *testing.T) {
	r, l := open(t)
	c := runner.Call{Op: newOp(), Kind: dormouse.OpTask, Exec: &runner.Exec{
		Command: "echo hello; while [ ! -e flood ]; do sleep 0.01; done; head -c 20000000 /dev/zero; echo last; sleep 1000",
	}}
	res := do(t, l, c)
	if res.PID == 0 || res.Log == "" || res.Error != "" {
		t.Fatalf("result: %+v", res)
	}
	log := func() string { b, _ := os.ReadFile(res.Log); return string(b) }
	eventually(t, "the log begins", func() bool { return strings.Contains(log(), "hello") })
	writeFile(t, r.workspace+"/flood", "")
	eventually(t, "the log ends", func() bool { return strings.HasSuffix(log(), "last\n") })
	if n := len(log()); n > 10<<20 {
		t.Errorf("log has %d bytes", n)
	}
	l.Forget(c.Op)
	if err := syscall.Kill(res.PID, 0); err != nil {
		t.Fatalf("the task is gone once forgotten: %v", err)
	}
	if err := l.Kill(deadline(t), c.Op); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(res.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the task outlives its killing: %v", err)
	}
}

func TestManyQuickCommands(t *testing.T) {
	_, l := open(t)
	for i := range 200 {
		c := exec(fmt.Sprint("echo ", i))
		if got, want := string(do(t, l, c).Output), fmt.Sprintln(i); got != want {
			t.Fatalf("command %d printed %q", i, got)
		}
		l.Forget(c.Op)
	}
}

func TestOpsRunBesideEachOther(t *testing.T) {
	r, l := open(t)
	// Each waits for all the others, so none ends unless all run at once.
	const n = 20
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			c := exec(fmt.Sprintf("touch here.%d; while [ $(ls here.* | wc -l) -lt %d ]; do sleep 0.05; done; echo %d", i, n, i))
			if err := l.Start(deadline(t), c); err != nil {
				t.Error(err)
				return
			}
			if res, err := l.Wait(deadline(t), c.Op, nil); err != nil || string(res.Output) != fmt.Sprintln(i) {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		})
	}
	all.Wait()
	if got := len(mustGlob(t, r.workspace+"/here.*")); got != n {
		t.Errorf("%d ran", got)
	}
}

func BenchmarkExec(b *testing.B) {
	b.Run("runner", func(b *testing.B) {
		_, l := open(b)
		ctx := b.Context()
		for b.Loop() {
			c := exec("true")
			if err := l.Start(ctx, c); err != nil {
				b.Fatal(err)
			}
			if _, err := l.Wait(ctx, c.Op, nil); err != nil {
				b.Fatal(err)
			}
			l.Forget(c.Op)
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := osexec.Command("/bin/bash", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ask", func(b *testing.B) {
		_, l := open(b)
		for b.Loop() {
			if _, err := l.Ask(b.Context(), "op_none"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
