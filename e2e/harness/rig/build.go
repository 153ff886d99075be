// Package rig drives the real binary from outside: it builds it, starts it, kills it, sends it
// requests as a client does, and counts the effects that it really had. Nothing here trusts
// what the server says about itself.
package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary is a built server and the runner it puts into sandboxes.
type Binary struct {
	Server string
	Runner string
}

// Build compiles the server and the runner with the given tags into dir.
func Build(ctx context.Context, dir string, tags ...string) (Binary, error) {
	return BuildOver(ctx, dir, nil, tags...)
}

// Compile builds a program of the module that is put into sandboxes.
func Compile(ctx context.Context, out, what string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	return compile(ctx, root, out, what, nil, "-ldflags", "-s -w")
}

func compile(ctx context.Context, root, out, what string, tags []string, more ...string) error {
	// As in the Makefile: what debuggers need is most of the time it takes to link.
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", strings.Join(tags, ","), "-o", out}, more...)
	cmd := exec.CommandContext(ctx, "go", append(args, what)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with tags %v: %w\n%s", what, tags, err, text)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Beside returns the binary at path with the runner that lies beside it, if one
// does; otherwise the server uses the one inside it.
func Beside(path string) (Binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, err
	}
	b := Binary{Server: path, Runner: filepath.Join(filepath.Dir(path), "dormouse-runner")}
	if _, err := os.Stat(b.Runner); err != nil {
		b.Runner = ""
	}
	if _, err := os.Stat(b.Server); err != nil {
		return Binary{}, fmt.Errorf("there is no server: %w", err)
	}
	return b, nil
}

// TempDir makes a directory where killing processes is quick: what a SIGKILL
// leaves behind does not depend on what reached a disk.
func TempDir(pattern string) (string, error) {
	const memory = "/dev/shm"
	if at, err := os.Stat(memory); err == nil && at.IsDir() {
		if dir, err := os.MkdirTemp(memory, pattern); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", pattern)
}
