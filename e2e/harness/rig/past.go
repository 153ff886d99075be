package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Unpack lays a data directory out that a server left, of any version.
func Unpack(ctx context.Context, archive, data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "tar", "-C", data, "--no-same-owner", "-xzf", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	return nil
}
