//go:build linux

package inside

import (
	"path/filepath"
	"testing"
	"time"
)

// superviseShell waits until a shell that is over was sent its last command.
func TestAShellThatCannotMoveKeepsNobodyWaiting(t *testing.T) {
	r := new(Runner)
	sh := &shell{dir: filepath.Join(t.TempDir(), "gone")} // where no FIFO can be made
	seen := make(chan *shellCommand, 1)
	go func() {
		for {
			sh.mu.Lock()
			c := sh.current
			sh.mu.Unlock()
			if c != nil {
				seen <- c
				return
			}
		}
	}()
	for {
		if r.redirectIdle(sh, new(op)) {
			t.Fatal("it moved")
		}
		select {
		case c := <-seen:
			select {
			case <-c.sent:
			case <-time.After(30 * time.Second):
				t.Error("who keeps it would wait for ever")
			}
			return
		default:
		}
	}
}
