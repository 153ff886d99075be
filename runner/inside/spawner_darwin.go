package inside

import (
	"errors"
	"os/exec"
)

// spawner has nothing to keep: only Linux has capabilities to drop, and processes that
// die with the thread which started them.
type spawner struct{}

func (*spawner) close() {}

// startCommand starts cmd. Everything that the runner starts begins here.
func (r *Runner) startCommand(cmd *exec.Cmd) error {
	if r.opts.DropCaps || r.opts.Pids > 0 {
		return errors.New("processes can be limited on Linux only")
	}
	return cmd.Start()
}
