//go:build linux

package rootfs_test

import (
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

func TestALockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				unlock, err := rootfs.TryLock(path)
				if err != nil {
					continue // another goroutine has it
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				runtime.Gosched()
				holders.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	unlock, err := rootfs.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
