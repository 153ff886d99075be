package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// runc is the least that a container takes: what Docker starts its own with, and
// nothing around it.
type runc struct {
	dir  string
	name string // of its containers, which is also that of their limits on this machine
	runs int
}

// startRunc starts a container that waits for commands.
func startRunc(ctx context.Context, dir, rootfs string) (*runc, error) {
	r := &runc{dir: dir, name: "dormouse-bench-" + filepath.Base(dir)}
	for name, command := range map[string][]string{"once": echoCommand, "standing": {"/bin/sleep", "infinity"}} {
		if err := r.describe(ctx, name, rootfs, command); err != nil {
			return nil, fmt.Errorf("describe a container to runc: %w", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	cmd := r.command(ctx, "run", "--detach", "--bundle", filepath.Join(dir, "standing"), r.name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null // it keeps them
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("start a container with runc: %w", err)
	}
	return r, nil
}

// describe makes a bundle: what runc proposes, with a command of ours.
func (r *runc) describe(ctx context.Context, name, rootfs string, command []string) error {
	bundle := filepath.Join(r.dir, name)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return err
	}
	if _, err := output(r.command(ctx, "spec", "--bundle", bundle)); err != nil {
		return err
	}
	file := filepath.Join(bundle, "config.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		return errors.New("its proposal has no process")
	}
	process["terminal"], process["args"] = false, command
	spec["root"] = map[string]any{"path": rootfs, "readonly": true}
	if raw, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

// run is a command in a container of its own.
func (r *runc) run(ctx context.Context) (string, error) {
	r.runs++
	return output(r.command(ctx, "run", "--bundle", filepath.Join(r.dir, "once"), r.name+"-"+strconv.Itoa(r.runs)))
}

// exec is a command in a container that is there.
func (r *runc) exec(ctx context.Context, command ...string) (string, error) {
	return output(r.command(ctx, append([]string{"exec", r.name}, command...)...))
}

func (r *runc) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "runc", append([]string{"--root", filepath.Join(r.dir, "state")}, args...)...)
}

func (r *runc) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := output(r.command(ctx, "delete", "--force", r.name))
	return err
}

// output runs a program and returns what it printed, and fails with what it
// complained about.
func output(cmd *exec.Cmd) (string, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
