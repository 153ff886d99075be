package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/rig"
	"github.com/dormouse-run/dormouse/runner"
)

// noticeStaleServer lets two servers speak to one runner: a new one has taken
// over when the old one, which was only frozen, comes back to its socket and
// sends what it had decided to send. Nothing of that may happen any more.
func noticeStaleServer(ctx context.Context, b rig.Binary) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("the runner did not answer"))
	defer cancel()
	dir, err := os.MkdirTemp("", "dormouse-stale-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	const secret = "between us"
	socket, secrets := filepath.Join(dir, "socket"), filepath.Join(dir, "secret")
	if err := os.WriteFile(secrets, []byte(secret), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, b.Runner, "-socket", socket, "-secret", secrets, "-dir", dir, "-workspace", dir)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { cancel(); _ = cmd.Wait() }()

	listen := func(epoch uint64) (*runner.Link, error) {
		return runner.Listen(runner.LinkOptions{
			Path: socket, Secret: secret, Patience: 5 * time.Second, Beat: 50 * time.Millisecond,
			Fence: runner.Fence{Session: "sesn_stale", Generation: 1, Epoch: epoch},
		})
	}
	// The runner looks for a new socket once a second.
	for _, epoch := range []uint64{1, 2} {
		l, err := listen(epoch)
		if err != nil {
			return "", err
		}
		defer func() { _ = l.Close() }()
		if err := l.Ready(ctx); err != nil {
			return "", fmt.Errorf("epoch %d: %w", epoch, err)
		}
		if epoch == 2 {
			_ = l.Close()
		}
	}
	frozen, err := listen(1)
	if err != nil {
		return "", err
	}
	defer func() { _ = frozen.Close() }()
	mark := filepath.Join(dir, "happened")
	start := frozen.Start(ctx, runner.Call{
		Op: dormouse.OpID("op_late"), Kind: dormouse.OpWrite, Write: &runner.Write{Path: mark, Content: []byte("late")},
	})
	if _, err := os.Stat(mark); err == nil {
		return "an op of a server that was replaced took effect", nil
	}
	if start == nil {
		return "an op of a server that was replaced was accepted", nil
	}
	if !errors.Is(start, runner.ErrStale) && !errors.Is(start, runner.ErrUnreachable) {
		return "", start
	}
	return "", nil
}
