//go:build linux

package inside_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
)

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
