//go:build linux

package inside_test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/runner"
)

func inShell(name, command string) runner.Call {
	c := exec(command)
	c.Exec.Shell = name
	return c
}

func TestShellLivesOn(t *testing.T) {
	r, l := open(t)
	for _, test := range []struct {
		name, command string
		want          runner.Result
	}{
		{"starts in the workspace", "pwd; echo $OLDPWD", runner.Result{Output: []byte(r.workspace + "\n\n")}},
		{"takes state", "mkdir d; cd d; x=5; export y=6; f() { echo f$x; }; declare z=7; shopt -s extglob; set -o pipefail; umask 027", runner.Result{}},
		{"keeps state", "echo ${PWD##*/} $x $z; f; sh -c 'echo $y'; shopt -q extglob && false | true; echo $?; umask", runner.Result{Output: []byte("d 5 7\nf5\n6\n1\n0027\n")}},
		{"keeps jobs", "sleep 1000 & echo started", runner.Result{Output: []byte("started\n")}},
		{"ends jobs", "kill %1; wait %1; echo $?", runner.Result{Output: []byte("143\n")}},
		{"prints errors", "echo out; echo err >&2", runner.Result{Output: []byte("out\nerr\n")}},
		{"reads nothing", "cat; echo end", runner.Result{Output: []byte("end\n")}},
		{"prints anything", `printf '\000\377'`, runner.Result{Output: []byte{0, 0xff}}},
		{"fails", "(exit 7)", runner.Result{Exit: 7}},
		{"says what is not there", "command_not_found_handle() { echo \"$1 is not here\"; return 127; }\nnowhere", runner.Result{Exit: 127, Output: []byte("nowhere is not here\n")}},
		{"is told its op", "sh -c 'echo ${DORMOUSE_OP%%_*}'", runner.Result{Output: []byte("op\n")}},
	} {
		got := do(t, l, inShell("s", test.command))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if got := do(t, l, exec("pwd; echo $x")); string(got.Output) != r.workspace+"\n\n" {
		t.Errorf("a shell of its own: %+v", got)
	}
}

// TestFirstCommandGetsTheShellStartedAhead also when the workspace was not there
// yet when the shell was started.
func TestFirstCommandGetsTheShellStartedAhead(t *testing.T) {
	r := newRig(t)
	r.ahead, r.shells = true, filepath.Join(r.dir, "shells")
	if err := os.Remove(r.workspace); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	if err := os.Mkdir(r.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.shells, "ahead")); err != nil {
		t.Fatalf("no shell was started ahead: %v", err)
	}
	l := r.link(t, fence(1, 1))
	first := do(t, l, inShell("a", "pwd; x=1; (exit 3)"))
	if string(first.Output) != r.workspace+"\n" || first.Exit != 3 || first.NewShell {
		t.Errorf("the first command: %+v", first)
	}
	if _, err := os.Stat(filepath.Join(r.shells, "ahead")); !os.IsNotExist(err) {
		t.Errorf("the shell was not taken: %v", err)
	}
	if got := do(t, l, inShell("a", "echo $x")); string(got.Output) != "1\n" {
		t.Errorf("the same shell: %+v", got)
	}
	if got := do(t, l, inShell("b", "pwd; echo $x")); string(got.Output) != r.workspace+"\n\n" || got.NewShell {
		t.Errorf("another shell: %+v", got)
	}
}

func TestShellTakesHugeCommands(t *testing.T) {
	_, l := open(t)
	text := strings.Repeat("it's ünique ", 400_000)
	res := do(t, l, inShell("s", "x=$(cat <<'end'\n"+text+"\nend\n); echo ${#x}"))
	if want := fmt.Sprintln(len(text)); res.Error != "" || string(res.Output) != want {
		t.Errorf("result: %d, %q, %.100q, want %q", res.Exit, res.Error, res.Output, want)
	}
	if res := do(t, l, inShell("s", "export LC_ALL=C.UTF-8; echo ${#x}")); res.NewShell || string(res.Output) != fmt.Sprintln(utf8.RuneCountInString(text)) {
		t.Errorf("counted in letters: %+v", res)
	}
	if res := do(t, l, inShell("s", "x='ünïque'; echo ${#x}")); string(res.Output) != "6\n" {
		t.Errorf("a command in letters: %+v", res)
	}
	if res := do(t, l, inShell("s", "echo \x00")); res.Error == "" {
		t.Errorf("a NUL byte: %+v", res)
	}
}

func TestOpsOfOneShellRunInOrder(t *testing.T) {
	r, l := open(t)
	var ops []runner.Call
	for i := range 20 {
		c := inShell("s", fmt.Sprintf("until [ -e go ]; do sleep 0.01; done; echo %d >>order; echo $((n++))", i))
		start(t, l, c)
		ops = append(ops, c)
	}
	// Another shell is not held up.
	do(t, l, inShell("other", "touch go"))
	for i, c := range ops {
		if got := string(wait(t, l, c.Op).Output); got != fmt.Sprintln(i) {
			t.Errorf("op %d was number %s", i, got)
		}
	}
	var want strings.Builder
	for i := range ops {
		fmt.Fprintln(&want, i)
	}
	if diff := cmp.Diff(want.String(), r.read(t, "order")); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestOpInAShellActsOnce(t *testing.T) {
	r, l := open(t)
	c := inShell("s", "echo x >>acts; until [ -e go ]; do sleep 0.01; done")
	start(t, l, c)
	start(t, l, c)
	writeFile(t, r.workspace+"/go", "")
	wait(t, l, c.Op)
	start(t, l, c)
	wait(t, l, c.Op)
	if n := r.lines(t, "acts"); n != 1 {
		t.Errorf("acted %d times", n)
	}
	l.Forget(c.Op)
	if s := ask(t, l, c.Op); s != runner.NeverSeen {
		t.Errorf("forgotten: %s", s)
	}
}

func TestLongestIdleShellIsEnded(t *testing.T) {
	_, l := open(t)
	const most = 64
	shell := func(i int) string { return "s" + strconv.Itoa(i) }
	busy := inShell("busy", "until [ -e go ]; do sleep 0.05; done; echo $$")
	start(t, l, busy)
	for i := range most - 1 {
		do(t, l, inShell(shell(i), "memory=kept"))
	}
	do(t, l, inShell(shell(0), "true")) // so that 1 is idle for longest
	do(t, l, inShell(shell(most), "touch go"))
	if res := wait(t, l, busy.Op); res.Exit != 0 {
		t.Errorf("the busy one: %+v", res)
	}
	for i, fresh := range map[int]bool{0: false, 1: true, 3: false, most - 2: false} {
		if res := do(t, l, inShell(shell(i), "echo $memory")); res.NewShell != fresh {
			t.Errorf("shell %d: %+v", i, res)
		}
	}
}

func TestShellNames(t *testing.T) {
	_, l := open(t)
	for _, name := range []string{".", "..", "-", "sthr_01A.b-c", strings.Repeat("x", 128)} {
		if res := do(t, l, inShell(name, "echo x")); string(res.Output) != "x\n" {
			t.Errorf("%q: %+v", name, res)
		}
	}
	for _, name := range []string{"a b", "../x", "a/b", "é", "a\n", "a\x00", strings.Repeat("x", 129)} {
		if err := l.Start(deadline(t), inShell(name, "echo x")); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestShellWithoutAWorkspaceSaysWhy(t *testing.T) {
	r, l := open(t)
	if err := os.Remove(r.workspace); err != nil {
		t.Fatal(err)
	}
	if res := do(t, l, inShell("s", "true")); res.Error == "" || res.Exit == 0 {
		t.Errorf("result: %+v", res)
	}
}

func BenchmarkShellEcho(b *testing.B) {
	for name, shell := range map[string]string{"living": "s", "fresh": ""} {
		b.Run(name, func(b *testing.B) {
			_, l := open(b)
			ctx := b.Context()
			for b.Loop() {
				c := inShell(shell, "echo hello")
				if err := l.Start(ctx, c); err != nil {
					b.Fatal(err)
				}
				if res, err := l.Wait(ctx, c.Op, nil); err != nil || string(res.Output) != "hello\n" {
					b.Fatal(res, err)
				}
				l.Forget(c.Op)
			}
		})
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if out, err := osexec.Command("/bin/bash", "-c", "echo hello").Output(); err != nil || string(out) != "hello\n" {
				b.Fatal(out, err)
			}
		}
	})
}
