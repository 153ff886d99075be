//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// stage is what a demonstration uses: a server in a process of its own, one session, and
// what was seen of it.
type stage struct {
	out     io.Writer
	data    string
	keep    bool
	server  *exec.Cmd
	client  *client.Client
	token   string
	session dormouse.SessionID
	pid     string // of the process that counts
	count   int    // what it was last seen at
}

// patienceOnStage is how long anything may take on a slow machine.
const patienceOnStage = 60 * time.Second

func openStage(ctx context.Context, out io.Writer) (*stage, error) {
	data, err := os.MkdirTemp("", "dormouse-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{out: out, data: data}
	s.say("This is dormouse " + version + ", on " + data + ".\n")
	if err := s.serve(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// serve starts a server and returns once it answers.
func (s *stage) serve(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.data, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_ = os.Remove(filepath.Join(s.data, serverFile))                                                                                                                                      // of one that was killed
	s.server = exec.Command(self, "serve", "--data", s.data, "--vault-keys", filepath.Join(s.data, "vault-keys"), "--listen", "127.0.0.1:0", "--sandbox", sandboxGVisor, "--spares", "0") //nolint:noctx,gosec // ourselves; killed when the story says so
	s.server.Stdout, s.server.Stderr = log, log
	s.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us alone
	if err := s.server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Wait() }()
	ctx, cancel := context.WithTimeoutCause(ctx, patienceOnStage, errors.New("the server does not answer"))
	defer cancel()
	for {
		if c, err := s.reach(ctx); err == nil {
			s.client = c
			return nil
		}
		select {
		case <-ended:
			s.server = nil
			raw, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the server ended: %s", strings.TrimSpace(string(raw)))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// reach returns a client of the server if it is ready.
func (s *stage) reach(ctx context.Context) (*client.Client, error) {
	raw, err := os.ReadFile(filepath.Join(s.data, serverFile))
	if err != nil {
		return nil, err
	}
	var r running
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	token, err := auth.ReadToken(filepath.Join(s.data, tokenFile))
	if err != nil {
		return nil, err
	}
	s.token = token
	c, err := client.New(client.Options{URL: "http://" + r.Address, Token: token, HTTP: newHTTP()})
	if err != nil {
		return nil, err
	}
	return c, c.Ready(ctx)
}

// kill ends the server as a power cut would.
func (s *stage) kill() error {
	err := s.server.Process.Kill()
	for deadline := time.Now().Add(patienceOnStage); err == nil && s.server.ProcessState == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // its waiter reaps it
		if errors.Is(syscall.Kill(s.server.Process.Pid, 0), syscall.ESRCH) {
			break
		}
	}
	return err
}

func (s *stage) create(ctx context.Context) error {
	made, err := s.client.Create(ctx, client.CreateOptions{Title: "the demonstration"})
	s.session = made.Session
	return err
}

// sh runs a command in the sandbox, once however often it is asked for under the
// same id.
func (s *stage) sh(ctx context.Context, id, command string) (string, error) {
	e, err := s.client.Exec(ctx, s.session, client.ExecOptions{Command: command, ID: id}, nil)
	if err == nil && (e.Error != "" || e.Unknown) {
		err = fmt.Errorf("%s: %s", command, e.Error)
	}
	return strings.TrimSpace(e.Output), err
}

// counting waits until the counter has gone on from where it was.
func (s *stage) counting(ctx context.Context) error {
	before := s.count
	return s.until(ctx, "the counter counts", func() bool {
		out, err := s.sh(ctx, "", "cat count")
		if err != nil {
			return false
		}
		s.count, err = strconv.Atoi(out)
		return err == nil && s.count > before
	})
}

func (s *stage) hibernate(ctx context.Context) error {
	if err := s.counting(ctx); err != nil {
		return err
	}
	if _, err := s.client.Hibernate(ctx, s.session); err != nil {
		return err
	}
	return s.until(ctx, "the session hibernates", func() bool {
		shown, err := s.show(ctx)
		return err == nil && shown.Phase == dormouse.PhaseHibernated
	})
}

func (s *stage) show(ctx context.Context) (client.Session, error) {
	return s.client.Show(ctx, s.session)
}

// prompt sends a prompt, waits for the end of its turn and returns what the
// command that it led to printed.
func (s *stage) prompt(ctx context.Context, text string) (string, error) {
	p, err := s.client.Send(ctx, s.session, client.SendOptions{Content: []dormouse.Block{dormouse.Text(text)}})
	if err != nil {
		return "", err
	}
	if err := s.until(ctx, "the turn has ended", func() bool {
		shown, err := s.show(ctx)
		return err == nil && shown.Queue == 0 && shown.Status == dormouse.StatusIdle
	}); err != nil {
		return "", err
	}
	for e, err := range s.client.Events(ctx, s.session, client.EventOptions{After: p.Seq}) {
		if err != nil {
			return "", err
		}
		var r dormouse.ToolResult
		if e.Type == dormouse.AgentToolResult && json.Unmarshal(e.Payload, &r) == nil && len(r.Content) > 0 {
			return strings.TrimSpace(r.Content[0].Text), nil
		}
	}
	return "", errors.New("the agent did nothing")
}

func (s *stage) until(ctx context.Context, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOnStage)
	defer cancel()
	for !so() {
		if sleep.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("waited in vain until %s", what)
		}
	}
	return nil
}

// close takes everything away and checks that nothing is left.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOnStage)
	defer cancel()
	var err error
	if s.session != "" {
		_, err = s.client.Delete(ctx, s.session)
		gone := s.until(ctx, "the session is gone", func() bool {
			_, err := s.show(ctx)
			return errors.Is(err, dormouse.ErrNotFound)
		})
		err = errors.Join(err, gone)
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Process.Signal(syscall.SIGTERM), s.until(ctx, "the server has ended", func() bool {
			return errors.Is(syscall.Kill(s.server.Process.Pid, 0), syscall.ESRCH)
		}))
	}
	if n, e := processesOf(s.data); e != nil || n > 0 {
		err = errors.Join(err, e, fmt.Errorf("%d processes of a sandbox are left", n))
	}
	if raw, e := os.ReadFile("/proc/self/mountinfo"); e != nil || strings.Contains(string(raw), " "+s.data) {
		return errors.Join(err, e, fmt.Errorf("something is still mounted in %s", s.data))
	}
	if s.keep || err != nil {
		s.say("\nThe data directory is " + s.data + ".\n")
		return err
	}
	return os.RemoveAll(s.data)
}

// processesOf counts the processes of the sandboxes of a data directory.
func processesOf(data string) (int, error) {
	instance, err := instanceOf(data)
	if err != nil {
		return 0, err
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range lines {
		if raw, err := os.ReadFile(name); err == nil && strings.Contains(string(raw), "/run/dormouse/"+instance) {
			n++
		}
	}
	return n, nil
}
