// Package companion starts programs that end with this process, even if it is killed: the
// servers that tests and measurements need.
package companion

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// Start starts a program that is sent a signal when this process ends. The channel receives
// once how the program ended.
func Start(cmd *exec.Cmd, last syscall.Signal) (*os.Process, <-chan error, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	dieWith(cmd.SysProcAttr, last)
	begun, ended := make(chan error), make(chan error, 1)
	go func() {
		// The signal comes when the thread that started the process ends. So the
		// thread is kept until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		return nil, nil, err
	}
	return cmd.Process, ended, nil
}

// Tail keeps the end of the output of a program.
type Tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - 1<<14; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(b), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
