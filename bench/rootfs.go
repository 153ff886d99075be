package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// inContainers are the programs that containers are given. They are this
// machine's own, as in a sandbox.
var inContainers = []string{"/bin/bash", "/bin/true", "/bin/sleep"}

var library = regexp.MustCompile(`/\S*\.so\S*`)

// makeRootFS makes the root file system that containers start from: a few
// programs and what they are linked with. No registry is asked.
func makeRootFS(ctx context.Context, dir string) error {
	linked, err := exec.CommandContext(ctx, "ldd", inContainers...).Output()
	if err != nil {
		return fmt.Errorf("see what the programs of an image are linked with: %w", err)
	}
	for _, name := range append(library.FindAllString(string(linked), -1), inContainers...) {
		if err := copyFile(name, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("make the image of containers: %w", err)
		}
	}
	for _, name := range []string{"proc", "dev", "sys", "etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return fmt.Errorf("make the image of containers: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
