//go:build linux

package runner

import "os/exec"

// startCommand starts cmd. Everything that the runner starts begins here.
func (r *Runner) startCommand(cmd *exec.Cmd) error { return cmd.Start() }
