//go:build !linux

package local

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

var errLinux = errors.New("local sandboxes need Linux")

// Driver makes sandboxes out of ordinary processes, on Linux.
type Driver struct{}

// New says that there are no local sandboxes on this system.
func New(Options) (*Driver, error) { return nil, errLinux }

func (*Driver) KeepsWorkspace() bool { return true }

func (*Driver) Workspace(dormouse.SessionID) (string, error) { return "", errLinux }

func (*Driver) Create(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { return nil, errLinux }

func (*Driver) Attach(context.Context, sandbox.Handle, runner.Fence) (sandbox.Sandbox, error) {
	return nil, errLinux
}

func (*Driver) Stop(context.Context, sandbox.Handle, runner.Fence) error { return errLinux }

func (*Driver) Remove(context.Context, runner.Fence) error { return errLinux }

func (*Driver) Sweep(context.Context, func(dormouse.SessionID) sandbox.Owned) error { return errLinux }
