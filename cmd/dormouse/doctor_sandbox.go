//go:build !windows

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// checkSandbox starts a sandbox like those of the server, runs a command in it and
// takes it away again.
func checkSandbox(ctx context.Context, c config) (string, error) {
	has, err := kindOf(c.Data)
	if err != nil {
		return "", err
	}
	if cmp.Or(has, c.Sandbox, sandboxGVisor) == sandboxLocal {
		return "local, which isolates nothing", nil
	}
	dir, err := os.MkdirTemp("", "dormouse-doctor-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := c.Runner
	if program == "" {
		if program, err = placeRunner(dir); err != nil {
			return "", err
		}
	}
	leaveEnvironment(c)
	began := time.Now()
	d, err := gvisor.New(gvisor.Options{
		Dir: filepath.Join(dir, sandboxGVisor), Instance: "doctor-" + strings.ToLower(rand.Text()[:8]), Runner: program,
		Limits: c.Limits.parsed, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", err
	}
	kernel, err := try(ctx, d)
	if err = errors.Join(err, d.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("gVisor, %s, up and gone in %s", kernel, since(began)), nil
}

// try runs a command in a sandbox of its own.
func try(ctx context.Context, d *gvisor.Driver) (_ string, err error) {
	f := runner.Fence{Session: "sesn_doctor", Generation: 1, Epoch: 1}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx), f)) }()
	s, err := d.Create(ctx, sandbox.Spec{Fence: f})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(s.Close(), err) }()
	call := runner.Call{Op: "op_doctor", Kind: dormouse.OpExec, Exec: &runner.Exec{Command: "uname -sr"}}
	if err := s.Start(ctx, call); err != nil {
		return "", err
	}
	r, err := s.Wait(ctx, call.Op, nil)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return strings.TrimSpace(string(r.Output)), err
}
