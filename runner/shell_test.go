//go:build linux

package runner_test

import (
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"

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
		{"says where it fails", "true\nnowhere", runner.Result{Exit: 127, Output: []byte("bash: line 2: nowhere: command not found\n")}},
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
				if err := l.Forget(ctx, c.Op); err != nil {
					b.Fatal(err)
				}
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

var _ = fmt.Sprint
var _ = strings.Repeat
