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
		defer w.Close()
		// The runner knows its children best: asked, it leaves none behind.
		obeying, cancel := context.WithTimeout(ctx, obeyWithin)
		w.Signal(unix.SIGTERM)
		w.Signal(unix.SIGCONT)
		if w.Wait(obeying) != nil {
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
	left, err := inside.Alive(p.dir)
	if err == nil && left != 0 {
		err = fmt.Errorf("process %d lives on", left)
	}
	return err
}
