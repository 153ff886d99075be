//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
)

// Flatten copies what layers show, the lowest first, with nothing below them, into
// an empty directory. It shares nothing with them.
func Flatten(ctx context.Context, dirs []string, l Limits, to string) error {
	layers, err := openRoots(dirs)
	if err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	defer closeAll(layers)
	dst, err := openRoot(to)
	if err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	defer func() { _ = dst.Close() }()
	var all []placed
	from, room := make([]copier, len(dirs)), RoomIn(to)
	for n, dir := range dirs {
		entries, _, err := Scan(ctx, dir, l)
		if err != nil {
			return fmt.Errorf("flatten: %w", err)
		}
		if all = lay(all, n, entries); len(all) > l.Entries {
			return fmt.Errorf("flatten: %w", ErrTooMany)
		}
		from[n] = copier{src: layers[n], dst: dst, room: room, links: make(map[uint64]string)}
	}
	made := make(Index, 0, len(all))
	for _, p := range all {
		if ctx.Err() != nil {
			return fmt.Errorf("flatten: %w", context.Cause(ctx))
		}
		p.Opaque = false
		made = append(made, p.Entry)
		c := &from[p.layer]
		err := c.entry(p.Entry)
		if err == nil && len(c.torn) > 0 {
			err = errors.New("somebody changes the layer")
		}
		if err != nil {
			return fmt.Errorf("flatten %.200q: %w", p.Path, err)
		}
	}
	if err := stampDirs(dst, made); err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	return nil
}
