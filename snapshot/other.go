//go:build !linux

package snapshot

import (
	"context"
	"errors"
	"io"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

var errLinux = errors.New("snapshots need Linux")

// Store stores layers, on Linux.
type Store struct{}

// Stage is a directory in which a layer is made.
type Stage struct{ Dir string }

// Open says that there are no layers on this system.
func Open(Options) (*Store, error) { return nil, errLinux }

func (*Store) Close() error { return nil }

func (*Store) Stage(context.Context) (*Stage, error) { return nil, errLinux }

func (*Stage) Close() error { return nil }

func (*Store) Put(context.Context, *Stage) (dormouse.Layer, error) {
	return dormouse.Layer{}, errLinux
}

func (*Store) Adds(context.Context, *Stage, []dormouse.Layer) (bool, error) { return false, errLinux }

func (*Store) Acquire(context.Context, dormouse.SessionID, uint64, []dormouse.Layer, func(done, total int64)) ([]string, error) {
	return nil, errLinux
}

func (*Store) Check(context.Context, []dormouse.Layer) error { return errLinux }

func (*Store) Release(dormouse.SessionID, uint64) error { return nil }

func (*Store) ReleaseAll(dormouse.SessionID) error { return nil }

func (*Store) Compact(context.Context, []dormouse.Layer) error { return errLinux }

func (*Store) Compacted(chain []dormouse.Layer) []dormouse.Layer { return chain }

func (*Store) Sweep(context.Context, func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error), func(dormouse.SessionID) (bool, error)) (int, error) {
	return 0, nil
}

func (*Store) Export(context.Context, io.Writer, []dormouse.Layer, Meta) error { return errLinux }

func (*Store) Import(context.Context, io.Reader, layer.Limits) ([]dormouse.Layer, error) {
	return nil, errLinux
}

func (*Store) Diff(context.Context, []dormouse.Layer, []dormouse.Layer, int) (Difference, error) {
	return Difference{}, errLinux
}

func (*Store) View(context.Context, []dormouse.Layer) ([]string, func(), error) {
	return nil, nil, errLinux
}

func (*Store) Limits() layer.Limits { return layer.Limits{} }
