package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// The commands that are run everywhere. In a shell that stays, echo forks nothing; true
// is the smallest program.
var (
	echoCommand = []string{"/bin/bash", "-c", "echo hello"}
	trueCommand = []string{"/bin/true"}
)

const (
	echoShort = "echo hello"
	trueShort = "/bin/true"
)

// sandboxes measures real sandboxes over the API of a real server, beside Docker
// and runc. Every round takes one sample of each, so that whatever else the
// machine does meets them all.
func (b *bench) sandboxes(ctx context.Context) (err error) {
	s, err := b.openSandboxes(ctx)
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	for n := range 1 + b.times(20) {
		if n == 1 {
			s.forget() // the first round only warmed things up
		}
		if err := s.round(ctx); err != nil {
			return err
		}
	}
	s.report(b)
	return errors.Join(b.hibernations(ctx, s.warm), b.weigh(ctx, s.cold))
}

// contest is a list of the systems that are compared, and how long each took.
type contest struct {
	warm, cold *server // the one keeps a sandbox ready, the other none
	standing   string  // a session of the cold server that has its sandbox
	docker     *docker
	runc       *runc

	timings
}

func (b *bench) openSandboxes(ctx context.Context) (*contest, error) {
	c := &contest{timings: make(timings)}
	rootfs, err := b.space("rootfs")
	if err != nil {
		return nil, err
	}
	if err := makeRootFS(ctx, rootfs); err != nil {
		return nil, err
	}
	dir, err := b.space("docker")
	if err != nil {
		return nil, err
	}
	if c.docker, err = startDocker(ctx, dir, rootfs); err != nil {
		return nil, err
	}
	if dir, err = b.space("runc"); err != nil {
		return c, err
	}
	if c.runc, err = startRunc(ctx, dir, rootfs); err != nil {
		return c, err
	}
	if c.warm, err = b.serveSandboxes(ctx, "warm", 1); err != nil {
		return c, err
	}
	if c.cold, err = b.serveSandboxes(ctx, "cold", 0); err != nil {
		return c, err
	}
	c.standing, err = c.cold.createBox(ctx)
	if err == nil {
		err = c.cold.says(ctx, c.standing, "main", echoShort, "hello")
	}
	return c, err
}

// close ends everything, in the order in which nothing is left behind.
func (c *contest) close(ctx context.Context) error {
	var errs []error
	for _, s := range []*server{c.warm, c.cold} {
		if s != nil {
			errs = append(errs, s.clear(ctx))
		}
	}
	if c.runc != nil {
		errs = append(errs, c.runc.stop())
	}
	return errors.Join(append(errs, c.docker.Stop(ctx))...)
}

// burst is how many commands in a row are run in an existing sandbox, one after the
// other.
const burst = 10

// The names of what is timed.
const (
	warmOurs, coldOurs, dockerRun, runcRun     = "warm", "cold", "docker run", "runc run"
	echoOurs, trueOurs                         = "echo", "true"
	echoDocker, trueDocker, echoRunc, trueRunc = "docker exec echo", "docker exec true", "runc exec echo", "runc exec true"
	trueHost                                   = "fork"
)

// round takes one sample of everything.
func (c *contest) round(ctx context.Context) error {
	if err := c.claim(ctx, warmOurs, c.warm, 1); err != nil {
		return err
	}
	if err := c.claim(ctx, coldOurs, c.cold, 0); err != nil {
		return err
	}
	said := func(f func() (string, error), want string) func() error {
		return func() error {
			if got, err := f(); err != nil || got != want {
				return errors.Join(err, fmt.Errorf("it said %q and not %q", got, want))
			}
			return nil
		}
	}
	for _, t := range []struct {
		name string
		n    int
		do   func() error
	}{
		{dockerRun, 1, said(func() (string, error) { return c.docker.run(ctx, echoCommand...) }, "hello")},
		{runcRun, 1, said(func() (string, error) { return c.runc.run(ctx) }, "hello")},
		{echoOurs, burst, func() error { return c.cold.says(ctx, c.standing, "main", echoShort, "hello") }},
		{echoDocker, burst, said(func() (string, error) { return c.docker.exec(ctx, echoCommand...) }, "hello")},
		{echoRunc, burst, said(func() (string, error) { return c.runc.exec(ctx, echoCommand...) }, "hello")},
		{trueOurs, burst, func() error { return c.cold.says(ctx, c.standing, "main", trueShort, "") }},
		{trueDocker, burst, said(func() (string, error) { return c.docker.exec(ctx, trueCommand...) }, "")},
		{trueRunc, burst, said(func() (string, error) { return c.runc.exec(ctx, trueCommand...) }, "")},
		{trueHost, burst, func() error { return exec.CommandContext(ctx, trueCommand[0]).Run() }},
	} {
		if err := c.times(t.name, t.n, t.do); err != nil {
			return err
		}
	}
	return nil
}

// claim times a new session up to the result of its first command. Before it, and again
// after it, it waits until the server has its spares ready, so that making one does not
// slow the next sample down.
func (c *contest) claim(ctx context.Context, name string, s *server, spares int) error {
	if err := s.awaitSpares(ctx, spares); err != nil {
		return err
	}
	var session string
	err := c.times(name, 1, func() (err error) {
		if session, err = s.createBox(ctx); err != nil {
			return err
		}
		return s.says(ctx, session, "main", echoShort, "hello")
	})
	if err != nil {
		return err
	}
	return errors.Join(s.remove(ctx, session), s.awaitSpares(ctx, spares))
}

// report compares what was timed. Ours may take a share of what others take, or a
// time of its own on a quiet machine.
func (c *contest) report(b *bench) {
	for _, l := range []struct {
		name, ours, docker, runc string
		targets                  []target
	}{
		{"sandbox-warm", warmOurs, dockerRun, runcRun, []target{atMost("ratio", 0.1)}},
		{"sandbox-cold", coldOurs, dockerRun, runcRun, []target{atMost("ratio", 0.8)}},
		{"sandbox-echo", echoOurs, echoDocker, echoRunc, []target{atMost("ours", 3), atMost("ratio", 0.05)}},
		{"sandbox-true", trueOurs, trueDocker, trueRunc, []target{atMost("ours", 20)}},
	} {
		us, them := took("ours", c.timings[l.ours].median()), took("docker", c.timings[l.docker].median())
		b.report("bench", line{Name: l.name, Targets: l.targets, Numbers: []number{
			us, them, ratio(us, them), took("runc", c.timings[l.runc].median()), took("fork", c.timings[trueHost].median()),
			took("ours-min", c.timings[l.ours].least()), took("docker-min", c.timings[l.docker].least()), took("runc-min", c.timings[l.runc].least()),
		}})
	}
}
