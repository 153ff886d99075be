package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

// launch starts the runner detached from the server: in a session of its own, without
// our streams, so that it outlives us.
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

// environment is the environment of a sandbox's processes.
func (d *Driver) environment(p place) []string {
	env := []string{
		mark + "=" + p.mark,
		"PATH=" + d.opts.SearchPath,
		"HOME=" + p.home,
		"LC_CTYPE=C.UTF-8", // and not LANG, for which every program reads a dozen files more
		"TERM=dumb",
	}
	// Only the first runner gets a crash point, or no sandbox would ever start.
	if crash.Enabled && !d.crashed.Swap(true) {
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "DORMOUSE_CRASH_") {
				env = append(env, e)
			}
		}
	}
	return env
}

// end ends the sandbox at p. It returns nil only once the PID file is unlocked and no
// process has the mark in its environment.
func (d *Driver) end(ctx context.Context, p place) error {
	w, err := p.openRunner()
	if err != nil {
		return err
	}
	stubborn := 0
	if w != nil {
		defer w.Close()
		// A runner that is asked to stop ends all its descendants itself.
		stopping, cancel := context.WithTimeout(ctx, stopTimeout)
		w.Signal(unix.SIGTERM)
		w.Signal(unix.SIGCONT)
		if w.Wait(stopping) != nil {
			stubborn = w.PID
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
	left, err := inside.LivePID(p.dir)
	if err == nil && left != 0 {
		err = fmt.Errorf("process %d lives on", left)
	}
	return err
}
