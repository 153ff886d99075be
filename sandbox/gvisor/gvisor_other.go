//go:build !linux

package gvisor

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

var errLinux = errors.New("gVisor sandboxes need Linux, so that nothing can be isolated on this system; " +
	"run the server on Linux, or with --sandbox local, which isolates nothing")

// Main does nothing on this system.
func Main() {}

// Driver makes sandboxes with gVisor, on Linux.
type Driver struct{}

// New says that there are no gVisor sandboxes on this system.
func New(Options) (*Driver, error) { return nil, errLinux }

func (*Driver) Furnish(e dormouse.Environment) (dormouse.Environment, error) { return e, errLinux }

func (*Driver) Images() (map[string]bool, error) { return nil, errLinux }

func (*Driver) CollectPackages(context.Context) error { return errLinux }

func (*Driver) KeepsWorkspace() bool { return true }

func (*Driver) Create(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { return nil, errLinux }

func (*Driver) Attach(context.Context, sandbox.Handle, runner.Fence) (sandbox.Sandbox, error) {
	return nil, errLinux
}

func (*Driver) Freeze(context.Context, sandbox.Handle, runner.Fence) error { return errLinux }

func (*Driver) Stop(context.Context, sandbox.Handle, runner.Fence) error { return errLinux }

func (*Driver) Remove(context.Context, runner.Fence) error { return errLinux }

func (*Driver) Sweep(context.Context, func(dormouse.SessionID) sandbox.Owned) error { return errLinux }

func (*Driver) Close() error { return nil }
