//go:build !linux

package rootfs

import (
	"context"
	"errors"
)

var errLinux = errors.New("images need Linux")

// Store keeps root file systems, on Linux.
type Store struct{}

// Open says that there are no images on this system.
func Open(Options) (*Store, error) { return nil, errLinux }

func (*Store) Root(context.Context, string, func(Progress)) (Root, error) { return Root{}, errLinux }

func (*Store) Pinned(context.Context, string, string, func(Progress)) (Root, error) {
	return Root{}, errLinux
}

func (*Store) Refresh(context.Context, string, func(Progress)) (Root, error) { return Root{}, errLinux }

func (*Store) Collect(context.Context, func(string) bool) error { return errLinux }
