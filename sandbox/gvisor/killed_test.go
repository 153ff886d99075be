//go:build linux

package gvisor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// served is what the test binary does as a server of its own, for a test to kill.
type served struct {
	Dir, Runner, Kernel string
	Fence               runner.Fence
	Handle              sandbox.Handle    `json:",omitempty"` // to capture for ever
	Workspace           sandbox.Workspace // to start a sandbox with, without one
}

const servedVariable = "GVISOR_TEST_SERVER"

// serve never returns if all goes well.
func serve(told string) error {
	var v served
	if err := json.Unmarshal([]byte(told), &v); err != nil {
		return err
	}
	out := os.Stdout // which a driver takes away
	d, err := gvisor.New(gvisor.Options{Dir: v.Dir, Instance: instance(v.Dir), Runner: v.Runner, Program: v.Kernel, Limits: gvisor.DefaultLimits()})
	if err != nil {
		return err
	}
	ctx := context.Background()
	fmt.Fprintln(out, "ready")
	if v.Handle == nil {
		_, err := d.Create(ctx, sandbox.Spec{Fence: v.Fence, Workspace: v.Workspace})
		fmt.Fprintln(out, "created", err)
		select {}
	}
	for n := 0; ; n++ {
		to, err := os.MkdirTemp(v.Dir, "to")
		if err != nil {
			return err
		}
		_, err = d.Snapshot(ctx, sandbox.SnapshotRequest{
			Fence: v.Fence, Handle: v.Handle, Since: dormouse.SnapshotID(fmt.Sprintf("snap_%d", n-1)), As: dormouse.SnapshotID(fmt.Sprintf("snap_%d", n)),
			To: to, Limits: layer.Limits{Entries: 1 << 20, Bytes: 1 << 30},
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "captured")
	}
}

// killed runs a server, waits until it says something, and kills it at some time
// after that.
func (h *fixture) killed(v served, says string, within time.Duration) {
	h.t.Helper()
	v.Dir, v.Runner, v.Kernel = h.dir, runnerPath, kernelPath
	told, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), servedVariable+"="+string(told))
	out, err := server.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		h.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != says { // it may have failed: that shows soon enough
		h.t.Log(lines.Text())
	}
	time.Sleep(rand.N(within))
	if err := server.Process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	_ = server.Wait()
}

// kills is how often each of these tests kills. "make naps" has them do it more
// often.
func kills() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("KILLS"), 10, 64); err == nil {
		return n
	}
	return 5
}

func TestASandboxOutlivesServersThatAreKilledWhileTheyCapture(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.counting(s)
	h.sh(s, "mkdir many; for n in $(seq 300); do echo $n >many/$n; done")
	for epoch := uint64(2); epoch < 2+kills(); epoch++ {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		h.killed(served{Fence: fence(1, epoch), Handle: s.Handle()}, "captured", 30*time.Millisecond)
		held := len(h.notes()) > 0
		var err error
		if s, err = h.Attach(within(t), s.Handle(), fence(1, epoch)); err != nil {
			t.Fatalf("held %v: %v", held, err)
		}
		after := h.count(s)
		h.until(s, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
		t.Logf("killed while it was held: %v", held)
	}
	h.mustSnapshot(s, fence(1, 2+kills()), sandbox.Workspace{}, "", "snap_1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkspaceOutlivesServersThatAreKilledWhileTheyRestore(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo base >file; mkdir many; for n in $(seq 300); do echo $n >many/$n; done")
	base, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "echo later >file")
	h.stop(s)
	for n := uint64(1); n <= kills(); n++ {
		w := sandbox.Workspace{Number: n, Base: "snap_1", Layers: []string{base}}
		h.killed(served{Fence: fence(n+1, 1), Workspace: w}, "ready", 250*time.Millisecond)
		h.Driver = open(t, h.dir)
		s := h.createOver(fence(n+1, 2), w)
		if got := h.sh(s, "cat file; ls many | wc -l"); got != "base\n300" {
			t.Errorf("workspace %d has %q", n, got)
		}
		h.sh(s, "echo later >file")
		left := func() []string {
			found, err := filepath.Glob(filepath.Join(h.volume(), "ws", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		for ctx := within(t); len(left()) != 1; {
			if !wait(ctx) {
				t.Fatalf("there are %v", left())
			}
		}
		h.stop(s)
	}
}
