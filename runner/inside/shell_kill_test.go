//go:build linux

package inside_test

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKillLeavesTheShellAndSkipsTheRest(t *testing.T) {
	for name, command := range map[string]string{
		"a list":                "touch began; sleep 1000; touch wrong",
		"lines":                 "touch began; sleep 1000\ntouch wrong\ntouch wrong",
		"and, or":               "touch began; sleep 1000 && touch wrong || touch wrong",
		"a condition":           "touch began; if sleep 1000; then touch wrong; else touch wrong; fi",
		"a for loop":            "for i in 1 2 3; do touch began; sleep 1000; touch wrong; done; touch wrong",
		"a while loop":          "while :; do touch began; sleep 1000; [ ! -e began ] || touch wrong; done",
		"an until loop":         "touch began; until false; do sleep 1000; touch wrong; done",
		"a function":            "g() { touch began; sleep 1000; touch wrong; }; g; touch wrong",
		"builtins only":         "touch began; while :; do :; done; touch wrong",
		"a subshell":            "touch began; (while :; do :; done; touch wrong); touch wrong",
		"a substitution":        "touch began; x=$(while :; do :; done; touch wrong); touch wrong",
		"a pipeline":            "touch began; yes | while read -r x; do :; done; touch wrong",
		"deaf children":         "touch began; sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'; touch wrong",
		"a wait":                "sleep 1000 & touch began; wait; touch wrong",
		"detached":              "(setsid sh -c 'touch began; while :; do sleep 0.1; done' &); sleep 1000; touch wrong",
		"a cleared environment": "touch began; env -i sleep 1000; touch wrong",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := open(t)
			// What an earlier op left running, by program and by a copy of the shell. A
			// copy is known by when it was born, to a hundredth of a second.
			do(t, l, inShell("s", "memory=kept; sh -c 'while :; do echo x >>programs; sleep 0.02; done' & (while :; do echo x >>copies; read -t 0.02 <> <(:); done) & sleep 0.1"))
			c := inShell("s", command)
			start(t, l, c)
			eventually(t, "the command runs", func() bool { return len(mustGlob(t, r.workspace+"/began")) == 1 })
			if err := l.Kill(deadline(t), c.Op); err != nil {
				t.Fatal(err)
			}
			if res := wait(t, l, c.Op); !res.Killed || res.TimedOut || res.Exit < 128 {
				t.Errorf("result: %+v", res)
			}
			for _, file := range []string{"programs", "copies"} {
				before := r.lines(t, file)
				eventually(t, "what was running before goes on: "+file, func() bool { return r.lines(t, file) > before })
			}
			res := do(t, l, inShell("s", "echo $memory; shopt extdebug; [ -e wrong ] && echo wrong; jobs | wc -l; kill %1 %2"))
			if got := strings.Fields(string(res.Output)); res.NewShell || len(got) < 3 || got[0] != "kept" || got[2] != "off" || strings.Contains(string(res.Output), "wrong") {
				t.Errorf("afterwards: %+v\n%s", res, res.Output)
			}
		})
	}
}

func TestKillEndsAShellThatDoesNotComeBack(t *testing.T) {
	r, l := open(t)
	do(t, l, inShell("s", "sh -c 'while [ ! -e stop ]; do echo x >>beats; sleep 0.02; done' &"))
	c := inShell("s", "trap '' 64; touch began; while :; do :; done")
	start(t, l, c)
	eventually(t, "the command runs", func() bool { return len(mustGlob(t, r.workspace+"/began")) == 1 })
	if err := l.Kill(deadline(t), c.Op); err != nil {
		t.Fatal(err)
	}
	if res := wait(t, l, c.Op); !res.Killed || res.Exit != 128+int(syscall.SIGKILL) {
		t.Errorf("result: %+v", res)
	}
	before := r.lines(t, "beats")
	eventually(t, "what was running before goes on", func() bool { return r.lines(t, "beats") > before })
	writeFile(t, r.workspace+"/stop", "")
	if res := do(t, l, inShell("s", "pwd")); !res.NewShell || string(res.Output) != r.workspace+"\n" {
		t.Errorf("afterwards: %+v", res)
	}
	if res := do(t, l, inShell("s", "pwd")); res.NewShell {
		t.Errorf("later: %+v", res)
	}
}

func TestKillEndsWhatTookTheShellsPlace(t *testing.T) {
	r, l := open(t)
	c := inShell("s", `exec sh -c "trap '' TERM; while :; do echo x >>beats; sleep 0.01; done"`)
	start(t, l, c)
	eventually(t, "the command runs", func() bool { return r.lines(t, "beats") > 0 })
	if err := l.Kill(deadline(t), c.Op); err != nil {
		t.Fatal(err)
	}
	r.settled(t, "beats")
	if res := wait(t, l, c.Op); !res.Killed || res.Exit < 128 {
		t.Errorf("result: %+v", res)
	}
	if res := do(t, l, inShell("s", "true")); !res.NewShell || res.Exit != 0 {
		t.Errorf("afterwards: %+v", res)
	}
}

func TestTimeoutLeavesTheShell(t *testing.T) {
	_, l := open(t)
	c := inShell("s", "memory=kept; sleep 1000; memory=lost")
	c.Exec.Timeout = 100 * time.Millisecond
	// A machine that is too busy to begin in time gets more of it.
	for kept := ""; kept != "kept\n"; c.Exec.Timeout *= 2 {
		if c.Exec.Timeout > 20*time.Second {
			t.Fatal("the command never ran")
		}
		c.Op = newOp()
		if res := do(t, l, c); !res.TimedOut || res.Killed || res.Exit < 128 {
			t.Errorf("result: %+v", res)
		}
		kept = string(do(t, l, inShell("s", "echo $memory")).Output)
	}
}

func TestKillOfAnOpInTheLineLeavesTheOthers(t *testing.T) {
	r, l := open(t)
	first, second, third := inShell("s", "until [ -e go ]; do sleep 0.01; done"), inShell("s", "touch wrong"), inShell("s", "echo third")
	start(t, l, first)
	start(t, l, second)
	start(t, l, third)
	if err := l.Kill(deadline(t), second.Op); err != nil {
		t.Fatal(err)
	}
	if res := wait(t, l, second.Op); !res.Killed {
		t.Errorf("killed: %+v", res)
	}
	writeFile(t, r.workspace+"/go", "")
	if res := wait(t, l, first.Op); res.Exit != 0 {
		t.Errorf("first: %+v", res)
	}
	if res := wait(t, l, third.Op); string(res.Output) != "third\n" {
		t.Errorf("third: %+v", res)
	}
	if len(mustGlob(t, r.workspace+"/wrong")) > 0 {
		t.Error("the killed op ran")
	}
}
