//go:build linux

package sandboxtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Halt stops a process until thaw is called. It returns once every thread of it is stopped:
// on a busy machine some run on for a while after the signal was sent.
func Halt(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Errorf("%v to %d: %v", s, pid, err)
		}
	}
	signal(syscall.SIGSTOP)
	eventually(t, "every thread is stopped", func() bool {
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		if err != nil || len(threads) == 0 {
			t.Fatalf("process %d has no threads: %v", pid, err)
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			if err == nil && !bytes.Contains(stat, []byte(") T ")) { // one that ended does nothing
				return false
			}
		}
		return true
	})
	return func() { signal(syscall.SIGCONT) }
}
