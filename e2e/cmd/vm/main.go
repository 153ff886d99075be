// Command vm boots a Debian with systemd and cgroup v2 under QEMU and runs in it
// what depends on them: doctor, demo, the tests of a sandbox's limits and some
// cases of the wall. It ends with one line and fails if a check failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

// steps are what is run in the machine, in this order.
var steps = []string{"doctor", "demo", "limits", "wall"}

func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	m := machine{}
	var only, tests string
	var within time.Duration
	flag.StringVar(&m.cache, "cache", filepath.Join(cache, "dormouse", "vm"), "where the machine's disk is kept between runs")
	flag.StringVar(&m.suite, "suite", "bookworm", "which Debian to boot")
	flag.StringVar(&m.accel, "accel", "tcg,thread=multi", "QEMU's -accel: kvm where the machine can")
	flag.IntVar(&m.memory, "memory", 4096, "of the machine, in MiB")
	flag.IntVar(&m.slow, "slow", 20, "how many times slower than this machine it may be")
	flag.StringVar(&m.binary, "binary", "bin/dormouse", "the server")
	flag.StringVar(&only, "steps", strings.Join(steps, ","), "what to run in it")
	flag.StringVar(&tests, "tests", "", "only tests of the limits whose name matches")
	flag.DurationVar(&within, "within", 45*time.Minute, "how long all of it may take")
	flag.Parse()
	m.steps, m.tests = strings.Split(only, ","), tests
	for _, s := range m.steps {
		if !slices.Contains(steps, s) {
			return fmt.Errorf("-steps: there is no %q", s)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it took longer than %s", within))
	defer cancel()
	r, err := m.play(ctx)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	fmt.Fprintln(os.Stdout, r)
	return r.verdict()
}

// machine is what is booted, and what is run in it.
type machine struct {
	cache, suite, accel, binary, tests string
	memory, slow                       int
	steps                              []string
}

func (m machine) play(ctx context.Context) (*report, error) {
	if err := os.MkdirAll(m.cache, 0o700); err != nil {
		return nil, err
	}
	root, err := m.root(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the machine's disk: %w", err)
	}
	dir, err := os.MkdirTemp(m.cache, "run-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	disk, err := m.programs(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("build what is run in the machine: %w", err)
	}
	return m.boot(ctx, root, disk, dir)
}

// command runs a program and returns what it printed only if it failed.
func command(ctx context.Context, env []string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	// They are in no ordinary user's path.
	if path, err := exec.LookPath(name); err != nil {
		for _, dir := range []string{"/usr/sbin", "/sbin"} {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				c.Path, c.Err = found, nil
			}
		}
	} else {
		c.Path = path
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
