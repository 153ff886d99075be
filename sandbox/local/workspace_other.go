//go:build !linux

package local

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse/sandbox"
)

// build refuses: layers are read and written on Linux only, so that this driver is no
// sandbox.Snapshotter here and sessions have their first workspace.
func (f files) build(context.Context, sandbox.Workspace) error {
	return errors.New("workspaces are made of layers on Linux only")
}
