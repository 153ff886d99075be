//go:build linux

package inside_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse/runner/inside"
)

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
		inside, err := inside.New(inside.Options{
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
