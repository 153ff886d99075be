//go:build linux

package inside_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
)

func TestCommandsOfARunnerThatDropsCapabilities(t *testing.T) {
	if b, err := os.ReadFile("/proc/self/status"); err != nil || !regexp.MustCompile(`CapEff:\s*0*1ff`).Match(b) {
		t.Skip("needs the capabilities it is to lose")
	}
	r := newRig(t)
	inside, err := inside.New(inside.Options{
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
