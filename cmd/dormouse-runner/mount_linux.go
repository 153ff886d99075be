package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// moveIn bind-mounts the directories of the slot at their final paths.
func moveIn(slot, workspace string) error {
	for from, to := range map[string]string{"ws": workspace, "home": os.Getenv("HOME"), "tmp": "/tmp"} {
		if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // an image may come without it; as it is everywhere
			return fmt.Errorf("mount %s: %w", to, err)
		}
		if err := syscall.Mount(filepath.Join(slot, from), to, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
	}
	return nil
}
