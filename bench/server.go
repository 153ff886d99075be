package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is the binary at work on a data directory.
type server struct {
	*remote
	cmd   *exec.Cmd
	data  string
	began time.Time
	ready time.Duration // from the start of the process to the first good answer of /readyz
}

// serve starts the binary and returns once it is ready. What it logs goes to a
// file beside its data.
func (b *bench) serve(ctx context.Context, data string, args ...string) (_ *server, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, b.binary, append([]string{"serve", "--data", data, "--listen", address, "--log-level", "warn", "--sandbox", "local"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir}
	cmd.Stdout, cmd.Stderr = log, log
	s := &server{cmd: cmd, data: data, remote: newRemote(address), began: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.kill()
		said, _ := os.ReadFile(data + ".log")
		return nil, fmt.Errorf("%w; the server said:\n%s", err, said)
	}
	s.ready = time.Since(s.began)
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		s.kill()
		return nil, err
	}
	s.token = strings.TrimSpace(string(token))
	return s, nil
}

// await asks until the server says that it is ready.
func (s *server) await(ctx context.Context) error { return s.awaitAt(ctx, "/readyz") }

// awaitAt asks at a path until there is a good answer. A server that has only
// begun to listen may leave a question unanswered for ever.
func (s *server) awaitAt(ctx context.Context, path string) error {
	for ctx.Err() == nil {
		if time.Since(s.began) > patience {
			return errors.New("the server was never ready")
		}
		asked, cancel := context.WithTimeout(ctx, time.Second)
		err := s.call(asked, http.MethodGet, path, nil, nil)
		if cancel(); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return context.Cause(ctx)
}

// kill ends the server as a power cut would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.api.Close()
}

// stop ends the server as an operator would.
func (s *server) stop() error {
	s.api.Close()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	return s.cmd.Wait()
}

// resident is the memory the server has, in bytes.
func (s *server) resident() (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory the server has")
}

// busy is the processor time the server has used, or nothing if the kernel does
// not say.
func (s *server) busy() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	const user, system, tick = 11, 12, 10 * time.Millisecond // counted behind the name, which may hold anything
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) <= system {
		return 0
	}
	u, err1 := strconv.Atoi(fields[user])
	k, err2 := strconv.Atoi(fields[system])
	if errors.Join(err1, err2) != nil {
		return 0
	}
	return time.Duration(u+k) * tick
}

// freeAddress finds a port that is not in use at the moment.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// endStrays ends the sandboxes that servers of this run left behind, which is
// what sandboxes are for: they live on. They are known by their home.
func endStrays(dir string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(env), "\x00HOME="+dir+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return nil
}
