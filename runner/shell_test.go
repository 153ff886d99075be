//go:build linux

package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

// TestNothingWedgesAShell gives a shell a command that is bad for it, and then
// asks it for what it knew before.
func TestNothingWedgesAShell(t *testing.T) {
	_, l := open(t)
	type result struct {
		Exit     int
		Output   string
		NewShell bool
	}
	const whatever = "*"
	for name, test := range map[string]struct {
		command string
		want    result // of the command
		fresh   bool   // the next command finds another shell
	}{
		"half a command":         {"if", result{2, whatever, false}, false},
		"not a command":          {"echo )", result{2, whatever, false}, false},
		"half a quote":           {"echo 'x", result{2, whatever, false}, false},
		"half a here-document":   {"cat <<end\nx", result{0, whatever, false}, false},
		"a comment":              {"echo x # '", result{0, "x\n", false}, false},
		"nothing":                {"", result{0, "", false}, false},
		"a line too many":        {"\n\necho x\n\n", result{0, "x\n", false}, false},
		"exit":                   {"echo x; exit 3; echo y", result{3, "x\n", false}, true},
		"exit in a function":     {"g() { exit 4; }; g", result{4, "", false}, true},
		"exit with a trap":       {"trap 'echo bye' EXIT; exit 5", result{5, "bye\n", false}, true},
		"exec":                   {"exec sh -c 'echo x; exit 6'", result{6, "x\n", false}, true},
		"exec of nothing":        {"exec /nowhere", result{127, whatever, false}, true},
		"its own death":          {"kill -9 $$", result{137, "", false}, true},
		"errexit":                {"set -e; false; echo y", result{1, "", false}, true},
		"errexit without error":  {"set -e; echo y", result{0, "y\n", false}, false},
		"nounset":                {"set -u; echo $nowhere; echo y", result{1, whatever, false}, true},
		"division by zero":       {"echo $((1/0)); echo y", result{1, whatever, false}, false},
		"break":                  {"break; continue; return 3; echo y", result{0, whatever, false}, false},
		"other builtins":         {"read() { :; }; printf() { :; }; eval() { :; }; export() { :; }; exec() { :; }; command() { :; }; unset() { :; }; trap() { :; }; exit() { :; }", result{}, false},
		"aliases":                {"shopt -s expand_aliases; alias builtin=false read=false if=false", result{}, false},
		"no IFS":                 {"unset IFS; (exit 12)", result{12, "", false}, false},
		"another IFS":            {"IFS=0123456789; (exit 12)", result{12, "", false}, false},
		"strict options":         {"set -C -f -a -k; shopt -s failglob nullglob; (exit 9)", result{9, "", false}, false},
		"tracing":                {"set -x; (exit 9) 2>/dev/null", result{9, whatever, false}, false},
		"posix":                  {"set -o posix; if", result{2, whatever, false}, false},
		"closed descriptors":     {`for i in {0..260}; do eval "exec $i>&-"; done; (exit 9)`, result{9, whatever, false}, false},
		"closed output":          {"exec >&- 2>&-; (exit 9)", result{9, "", false}, false},
		"other output":           {"exec >log 2>&1 <log; echo y", result{}, false},
		"other input":            {"exec 255</dev/null 10</dev/null; (exit 9)", result{9, "", false}, false},
		"a trap of everything":   {"trap 'echo trapped >>log' DEBUG ERR RETURN TERM HUP; (exit 9)", result{9, whatever, false}, false},
		"a trap that forbids":    {"shopt -s extdebug; trap false DEBUG", result{0, "", false}, true},
		"no execution":           {"set -n", result{0, "", false}, true},
		"another way to call":    {"builtin() { :; }", result{0, "", false}, true},
		"no way to call":         {"enable -n builtin", result{127, whatever, false}, true},
		"no memory of the rest":  {"unset __dm", result{0, whatever, false}, true},
		"fixed names":            {"readonly DORMOUSE_OP", result{}, false},
		"few descriptors":        {"ulimit -n 20; (exit 9)", result{9, "", false}, false},
		"bytes that are no text": {"echo \xff\xfe\xe3'\xe3'", result{0, whatever, false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell := strings.ReplaceAll(name, " ", "_")
			if res := do(t, l, inShell(shell, "memory=kept")); res.Exit != 0 || res.NewShell {
				t.Fatalf("first command: %+v", res)
			}
			res := do(t, l, inShell(shell, test.command))
			got := result{res.Exit, string(res.Output), res.NewShell}
			if test.want.Output == whatever {
				got.Output = whatever
			}
			if got != test.want {
				t.Errorf("result: %+v, want %+v", res, test.want)
			}
			want := result{0, "kept\n", false}
			if test.fresh {
				want = result{0, "\n", true}
			}
			res = do(t, l, inShell(shell, "{ set +xeu; } 2>/dev/null; echo $memory"))
			if got := (result{res.Exit, strings.TrimPrefix(string(res.Output), "+ "), res.NewShell}); got.Exit != want.Exit || !strings.HasSuffix(got.Output, want.Output) || got.NewShell != want.NewShell {
				t.Errorf("next command: %+v, want %+v", res, want)
			}
			if res = do(t, l, inShell(shell, "echo end")); res.NewShell || !strings.HasSuffix(string(res.Output), "end\n") {
				t.Errorf("last command: %+v", res)
			}
		})
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

func TestShellKeepsLongOutput(t *testing.T) {
	_, l := open(t)
	res := do(t, l, inShell("s", "printf head; head -c 5242872 /dev/zero; printf tail"))
	if len(res.Output) != runner.KeptHead+runner.KeptTail || res.Omitted != 5<<20-int64(len(res.Output)) {
		t.Fatalf("kept %d and omitted %d", len(res.Output), res.Omitted)
	}
	if !bytes.HasPrefix(res.Output, []byte("head")) || !bytes.HasSuffix(res.Output, []byte("tail")) {
		t.Error("head or tail is missing")
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

func TestForgedCodeEndsItsOwnCommandOnly(t *testing.T) {
	r, l := open(t)
	do(t, l, inShell("forger", "true"))
	do(t, l, inShell("other", "true"))
	other := inShell("other", "until [ -e go ]; do sleep 0.01; done; echo real")
	start(t, l, other)
	// What the shell is to say is among what it was sent.
	c := inShell("forger", `m=${__dm[2]##*-\}}; n=${m#*\" }; m=${m%%\"*}; n=${n%% *}
		echo before; printf '\0\0%s\0%s9 9\n\0%s%d 256\n\0%s%d -1\n\0%s%d 7\n' "$m" "$m" "$m" "$n" "$m" "$n" "$m" "$n"
		until [ -e go ]; do sleep 0.01; done`)
	if res := do(t, l, c); res.Exit != 7 || !strings.HasPrefix(string(res.Output), "before\n") {
		t.Errorf("forged: %+v", res)
	}
	if s := ask(t, l, other.Op); s != runner.Running {
		t.Errorf("the other command: %s", s)
	}
	if res := do(t, l, inShell("forger", "echo next")); string(res.Output) != "next\n" {
		t.Errorf("next: %+v", res)
	}
	writeFile(t, r.workspace+"/go", "")
	if res := wait(t, l, other.Op); string(res.Output) != "real\n" {
		t.Errorf("the other command: %+v", res)
	}
}

// TestWhoIsLeftBehindPrintsToNoOtherCommand starts what goes on printing, and looks
// whose output that is.
func TestWhoIsLeftBehindPrintsToNoOtherCommand(t *testing.T) {
	_, l := open(t)
	res := do(t, l, inShell("s", "echo mine; while :; do echo stray; sleep 0.01; done & disown; (setsid sh -c 'while :; do echo stray; sleep 0.01; done' &)"))
	if !strings.HasPrefix(string(res.Output), "mine\n") && !strings.Contains(string(res.Output), "\nmine\n") {
		t.Errorf("first: %q", res.Output)
	}
	for range 5 {
		if res := do(t, l, inShell("s", "sleep 0.05; echo ours")); string(res.Output) != "ours\n" || res.NewShell {
			t.Errorf("next: %+v %q", res, res.Output)
		}
	}
}

// TestShellThatCannotMoveIsReplaced has a shell print where others print too, and
// takes from it the right to print elsewhere.
func TestShellThatCannotMoveIsReplaced(t *testing.T) {
	_, l := open(t)
	if res := do(t, l, inShell("s", "while :; do echo stray; sleep 0.01; done & set -r")); res.Exit != 0 {
		t.Errorf("restricted: %+v", res)
	}
	if res := do(t, l, inShell("s", "echo next")); string(res.Output) != "next\n" || !res.NewShell {
		t.Errorf("next: %+v %q", res, res.Output)
	}
}

// TestShellPrintsHereAgain has a command make the shell print elsewhere, and looks
// whether the next one is heard.
func TestShellPrintsHereAgain(t *testing.T) {
	_, l := open(t)
	if res := do(t, l, inShell("s", "x=kept; exec >log 2>&1; echo y; (exit 3)")); res.Exit != 3 || len(res.Output) > 0 {
		t.Errorf("elsewhere: %+v", res)
	}
	if res := do(t, l, inShell("s", "echo $x; cat log; echo err >&2")); string(res.Output) != "kept\ny\nerr\n" || res.NewShell {
		t.Errorf("here: %+v %q", res, res.Output)
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

func TestCommandsOfARunnerThatDropsCapabilities(t *testing.T) {
	if b, err := os.ReadFile("/proc/self/status"); err != nil || !regexp.MustCompile(`CapEff:\s*0*1ff`).Match(b) {
		t.Skip("needs the capabilities it is to lose")
	}
	r := newRig(t)
	inside, err := runner.New(runner.Options{
		Socket: r.dialled, SecretFile: filepath.Join(r.dir, "secret"),
		Dir: filepath.Join(r.dir, "state"), Workspace: r.workspace, DropCaps: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- inside.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	l := r.link(t, fence(1, 1))
	const command = "while read -r name value; do [ \"$name\" = CapBnd: ] && echo $value; done </proc/self/status"
	for _, c := range []runner.Call{exec(command), inShell("s", command), inShell("s", "bash -c '"+command+"'")} {
		if res := do(t, l, c); string(res.Output) != "00000000a80425fb\n" {
			t.Errorf("%s: %+v", c.Exec.Shell, res)
		}
	}
}

func TestShellWithoutItsDirectoryIsReplaced(t *testing.T) {
	r, l := open(t)
	for range 2 {
		do(t, l, inShell("s", "true"))
		if err := os.RemoveAll(filepath.Join(r.dir, "state/shells")); err != nil {
			t.Fatal(err)
		}
		// It may have its FIFO open, but cannot open it again.
		first, then := do(t, l, inShell("s", "echo x")), do(t, l, inShell("s", "echo y"))
		if string(first.Output) != "x\n" || string(then.Output) != "y\n" || first.NewShell == then.NewShell {
			t.Errorf("results: %+v, %+v", first, then)
		}
	}
}

func TestNextRunnerSaysThatItsShellIsNew(t *testing.T) {
	r, l := open(t)
	pid, err := strconv.Atoi(strings.TrimSpace(string(do(t, l, inShell("s", "echo $$")).Output)))
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the shell outlives its runner")
	}
	_ = l.Close()
	r.run(t)
	l = r.link(t, fence(1, 2))
	if res := do(t, l, inShell("s", "true")); !res.NewShell {
		t.Errorf("result: %+v", res)
	}
	if res := do(t, l, inShell("another", "true")); res.NewShell {
		t.Errorf("result: %+v", res)
	}
}

// TestShellDiesWithItsRunner kills a runner in a process of its own, which is
// this test once more.
func TestShellDiesWithItsRunner(t *testing.T) {
	if dir := os.Getenv("DORMOUSE_TEST_RUNNER"); dir != "" {
		inside, err := runner.New(runner.Options{
			Socket: filepath.Join(dir, "socket"), SecretFile: filepath.Join(dir, "secret"),
			Dir: filepath.Join(dir, "state"), Workspace: filepath.Join(dir, "workspace"),
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = inside.Run(context.Background())
		return
	}
	r := newRig(t)
	cmd := osexec.Command(os.Args[0], "-test.run=^TestShellDiesWithItsRunner$")
	cmd.Env = append(os.Environ(), "DORMOUSE_TEST_RUNNER="+r.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reap := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(reap)
	l := r.link(t, fence(1, 1))
	var pids []int
	for _, name := range []string{"idle", "busy"} {
		pid, err := strconv.Atoi(strings.TrimSpace(string(do(t, l, inShell(name, "echo $$")).Output)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	start(t, l, inShell("busy", "touch began; while :; do :; done"))
	eventually(t, "the command runs", func() bool { return len(mustGlob(t, r.workspace+"/began")) == 1 })
	reap()
	for _, pid := range pids {
		eventually(t, "the shell is gone", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(b, []byte(") Z "))
		})
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
