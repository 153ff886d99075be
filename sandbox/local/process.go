//go:build linux

package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

// launch starts the runner, tied to nothing of ours: not our terminal, not our
// streams, not our life.
func (d *Driver) launch(p place) (pid int, err error) {
	log, err := os.OpenFile(p.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("start the runner: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(d.opts.Runner, //nolint:gosec,noctx // our own binary, meant to outlive us and every request
		"-socket", p.socket(), "-secret", p.secret(), "-dir", p.dir, "-workspace", p.workspace)
	cmd.Dir = "/"
	cmd.Env = d.environment(p)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the runner: %w", err)
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}

// environment is all that a sandbox's processes are given.
func (d *Driver) environment(p place) []string {
	env := []string{
		mark + "=" + p.mark,
		"PATH=" + d.opts.SearchPath,
		"HOME=" + p.home,
		"LC_CTYPE=C.UTF-8", // and not LANG, for which every program reads a dozen files more
		"TERM=dumb",
	}
	// A runner is told where to die only once, or no sandbox would ever live.
	if crash.Enabled && !d.crashed.Swap(true) {
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "DORMOUSE_CRASH_") {
				env = append(env, e)
			}
		}
	}
	return env
}

// end ends whatever lives at p. It returns nil only when that is certain: nobody
// holds the sign of life, and no process carries the mark.
func (d *Driver) end(ctx context.Context, p place) error {
	w, err := p.watchRunner()
	if err != nil {
		return err
	}
	stubborn := 0
	if w != nil {
		defer w.close()
		// The runner knows its children best: asked, it leaves none behind.
		obeying, cancel := context.WithTimeout(ctx, obeyWithin)
		w.signal(unix.SIGTERM)
		w.signal(unix.SIGCONT)
		if w.wait(obeying) != nil {
			stubborn = w.pid
		}
		cancel()
	}
	err = proctree.End(ctx, func(q proctree.Process) bool {
		v, _ := q.Variable(mark)
		return v == p.mark || q.PID == stubborn
	}, 0)
	if err != nil {
		return err
	}
	left, err := runner.Alive(p.dir)
	if err == nil && left != 0 {
		err = fmt.Errorf("process %d lives on", left)
	}
	return err
}

// watched is a process whose end can be waited for without polling.
type watched struct {
	pid  int
	file *os.File
}

func watch(pid int) (*watched, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	return &watched{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (w *watched) signal(s unix.Signal) {
	if c, err := w.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	}
}

// wait returns nil once the process has ended. Only one may wait at a time.
func (w *watched) wait(ctx context.Context) error {
	c, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
	})
	err = c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // descriptors are small
		return err == nil && n > 0
	})
	if !stop() {
		<-expired
		_ = w.file.SetReadDeadline(time.Time{})
	}
	return err
}

// close ends the watch. A process that has ended is reaped, if it was ours.
func (w *watched) close() {
	if c, err := w.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil)
		})
	}
	_ = w.file.Close()
}
