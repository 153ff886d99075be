//go:build linux

package gvisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// weighs waits until a sandbox weighs little, or does not.
func weighs(t *testing.T, dir string, h sandbox.Handle, little bool) {
	t.Helper()
	file := weightFile(t, dir, h)
	for end := time.Now().Add(patience(30 * time.Second)); ; time.Sleep(5 * time.Millisecond) {
		got := strings.TrimSpace(read(t, file))
		if (got == "32" || got == "3") == little {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it weighs %s", got)
		}
	}
}

func weightFile(t *testing.T, dir string, h sandbox.Handle) string {
	t.Helper()
	var v struct{ Box string }
	if err := json.Unmarshal(h, &v); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"cpu/%/cpu.shares", "%/cpu.weight"} {
		name := filepath.Join("/sys/fs/cgroup", strings.ReplaceAll(pattern, "%", "dormouse-"+instance(dir)+"-"+v.Box))
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	t.Fatal("the sandbox has no weight")
	return ""
}

// retryEINTR does something again and again until stop is called.
func retryEINTR(t *testing.T, do func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// keepAsking has a client wait for a sandbox until stop is called.
func keepAsking(t *testing.T, s sandbox.Sandbox) (stop func()) {
	t.Helper()
	return retryEINTR(t, func(ctx context.Context) error {
		_, err := s.(sandbox.Machine).Usage(ctx)
		return err
	})
}

func TestSandboxThatNobodyWaitsForWeighsLittle(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	weighs(t, h.dir, s.Handle(), true)
	h.call(s, dormouse.OpTask, "while :; do :; done")
	weighs(t, h.dir, s.Handle(), true)
	stop := keepAsking(t, s)
	weighs(t, h.dir, s.Handle(), false)
	stop()
	weighs(t, h.dir, s.Handle(), true)
}

// A sandbox is paused while a snapshot of it is taken, whether or not a client has
// it open, so it must not wait for others.
func TestSandboxThatIsCapturedWeighsMore(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	for _, open := range []bool{true, false} {
		if !open {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		weighs(t, h.dir, s.Handle(), true)
		n := 0
		stop := retryEINTR(t, func(context.Context) error {
			n++
			_, _, err := h.snapshot(s, fence(1, 1), sandbox.Workspace{}, "", dormouse.SnapshotID(fmt.Sprintf("snap_%t%d", open, n)))
			return err
		})
		weighs(t, h.dir, s.Handle(), false)
		stop()
		weighs(t, h.dir, s.Handle(), true)
	}
}

func TestServerFindsWhatTheOneBeforeLeftHeavy(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.call(s, dormouse.OpTask, "while :; do :; done")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	weighs(t, h.dir, s.Handle(), true)
	// As if the server had been killed while a client waited.
	if err := os.WriteFile(weightFile(t, h.dir, s.Handle()), []byte("100"), 0); err != nil {
		t.Fatal(err)
	}
	h.restart()
	weighs(t, h.dir, s.Handle(), true)
}
