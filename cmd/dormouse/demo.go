//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func newDemo() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See in a minute what a session survives",
		Long: `Start a server of its own on a throw-away directory and take one session through
its life: commands in a sandbox, a server killed in the middle of one, a hibernation
and a waking with a process still counting. Everything it says was just checked on
the real thing; the first thing that is not so ends it with an error.

It needs root, for the sandbox, and nothing else: no key, no set-up, no network.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := openStage(ctx, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			s.keep = keep
			err = s.play(ctx)
			if stop := s.close(context.WithoutCancel(ctx)); err == nil {
				err = stop
			}
			if err == nil {
				s.say("\nThat was all of it, and nothing is left: no process, no mount, no file.\n" +
					"Start your own with \"dormouse serve\".\n")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the data directory behind")
	return cmd
}

// countForever is a process that keeps its count in memory and shows it in a file.
const countForever = `(n=0; while :; do n=$((n+1)); echo $n >count.new; mv count.new count; sleep 0.1; done) >/dev/null 2>&1 & echo $!`

// play is the demonstration. Each act says what it is about to show and then checks it.
func (s *stage) play(ctx context.Context) error {
	for _, act := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"A session has a sandbox: a kernel of its own, and none of this machine's files.", s.inSandbox},
		{"A process in it starts to count.", s.counts},
		{"The server is killed with SIGKILL in the middle of a command.", s.killed},
		{"The session hibernates.", s.hibernates},
		{"It wakes, and the process is still counting.", s.wakes},
		{"It hibernates again. A prompt to a sleeping session wakes it.", s.prompted},
	} {
		s.say("\n" + act.title + "\n")
		if err := act.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) inSandbox(ctx context.Context) error {
	began := time.Now()
	if err := s.create(ctx); err != nil {
		return err
	}
	kernel, err := s.sh(ctx, "", "uname -srn")
	if err != nil {
		return err
	}
	s.saw("uname says %q, %s after the session was asked for", kernel, since(began))
	if !strings.Contains(kernel, "gvisor") {
		return fmt.Errorf("the kernel is %q, not gVisor's", kernel)
	}
	secret := s.data + "/token"
	if out, err := s.sh(ctx, "", "cat "+secret+" 2>&1; ls /root/.ssh /home 2>&1; echo $?"); err != nil || strings.Contains(out, s.token) {
		return errors.Join(err, fmt.Errorf("the server's token can be read inside: %q", out))
	}
	s.saw("the server's own token, in %s, cannot be read from inside", secret)
	return nil
}

func (s *stage) counts(ctx context.Context) (err error) {
	if s.pid, err = s.sh(ctx, "", countForever); err != nil {
		return err
	}
	if err := s.counting(ctx); err != nil {
		return err
	}
	s.saw("process %s counts, and is at %d", s.pid, s.count)
	return nil
}

func (s *stage) killed(ctx context.Context) error {
	const command = "echo ran >>effects; sleep 3; echo finished, after $(wc -l <effects) run"
	answer := make(chan error, 1)
	go func() {
		_, err := s.sh(ctx, "one", command)
		answer <- err
	}()
	if err := s.until(ctx, "the command has begun", func() bool {
		out, err := s.sh(ctx, "", "cat effects")
		return err == nil && out == "ran"
	}); err != nil {
		return err
	}
	killed := time.Now()
	if err := s.kill(); err != nil {
		return err
	}
	if <-answer == nil {
		return errors.New("the command was answered by a server that was killed in the middle of it")
	}
	s.saw("the client lost its connection, and does not know whether the command ran")
	if err := s.serve(ctx); err != nil {
		return err
	}
	s.saw("another server has started, %s later", since(killed))
	out, err := s.sh(ctx, "one", command)
	if err != nil {
		return err
	}
	s.saw("asked again for the same command, it says %q", out)
	effects, err := s.sh(ctx, "", "wc -l <effects")
	if err != nil || effects != "1" || out != "finished, after 1 run" {
		return errors.Join(err, fmt.Errorf("the command ran %s times and said %q", effects, out))
	}
	if err := s.counting(ctx); err != nil {
		return err
	}
	s.saw("the counter never noticed; it is at %d", s.count)
	return nil
}

func (s *stage) hibernates(ctx context.Context) error {
	began := time.Now()
	if err := s.hibernate(ctx); err != nil {
		return err
	}
	took := since(began)
	n, err := processesOf(s.data)
	if err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("%d processes of the sandbox are left", n))
	}
	s.saw("memory and files were written, verified and synced in %s; no process of it is left", took)
	return nil
}

func (s *stage) wakes(ctx context.Context) error {
	before := s.count
	time.Sleep(time.Second) // a counter that ran on without us would show
	began := time.Now()
	out, err := s.sh(ctx, "", "cat count; kill -0 "+s.pid+" && echo alive")
	if err != nil {
		return err
	}
	took := since(began)
	at, alive, _ := strings.Cut(out, "\n")
	n, err := strconv.Atoi(at)
	const most = 8 // what it may have counted between our last look and the hibernation
	if err != nil || alive != "alive" || n < before || n > before+most*10 {
		return errors.Join(err, fmt.Errorf("after %d the counter is at %q", before, out))
	}
	s.saw("a command woke it and was answered in %s: process %s lives, at %d", took, s.pid, n)
	if err := s.counting(ctx); err != nil {
		return err
	}
	s.saw("and counts on: %d", s.count)
	return nil
}

func (s *stage) prompted(ctx context.Context) error {
	if err := s.hibernate(ctx); err != nil {
		return err
	}
	before := s.count
	said, err := s.prompt(ctx, "$ cat count")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < before {
		return errors.Join(err, fmt.Errorf("after %d the agent said %q", before, said))
	}
	s.saw("the agent woke it, looked, and found the counter at %d", n)
	return nil
}

// saw prints what was just checked.
func (s *stage) saw(format string, args ...any) {
	s.say("  ✓ " + fmt.Sprintf(format, args...) + "\n")
}

func (s *stage) say(text string) { _, _ = io.WriteString(s.out, text) }

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
