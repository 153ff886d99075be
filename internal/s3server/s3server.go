// Package s3server starts a real S3 server that lives no longer than the process
// that started it: for tests and measurements. It is versitygw, which keeps
// objects as files.
package s3server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/companion"
)

// The credentials of the administrator.
const (
	AccessKey = "dormouse"
	SecretKey = "sleeps all winter" //nolint:gosec // it opens nothing but a server of our own
	Region    = "us-east-1"
)

// patience bounds how long a server may take to start or to stop.
const patience = 30 * time.Second

// Server is an S3 server on a port of its own. Its methods are not for several
// goroutines at once.
type Server struct {
	program, dir, address string

	process *os.Process
	ended   <-chan error // how the process ended, once
	log     *companion.Tail
}

// Start serves these buckets, which are empty.
func Start(ctx context.Context, buckets ...string) (_ *Server, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start an s3 server: %w", err)
		}
	}()
	program, err := build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "s3-*")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir, log: new(companion.Tail)}
	for _, path := range append([]string{s.notes()}, s.paths(buckets)...) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if s.address, err = free(ctx); err == nil {
		err = s.Resume(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) paths(buckets []string) []string {
	var all []string
	for _, b := range buckets {
		all = append(all, s.Path(b, ""))
	}
	return all
}

// Path is the file that holds an object.
func (s *Server) Path(bucket, key string) string {
	return filepath.Join(s.dir, "buckets", bucket, filepath.FromSlash(key))
}

// notes is where the server keeps metadata that not every file system supports.
func (s *Server) notes() string { return filepath.Join(s.dir, "notes") }

// URL is where the server is.
func (s *Server) URL() string { return "http://" + s.address }

// Resume serves again after Stop, at the same address.
func (s *Server) Resume(ctx context.Context) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.program, //nolint:gosec // what we built
		"--port", s.address, "--region", Region, "--keep-alive", "--quiet", "posix", "--sidecar", s.notes(), filepath.Join(s.dir, "buckets"))
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + AccessKey, "ROOT_SECRET_KEY=" + SecretKey}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.log, s.log
	var err error
	if s.process, s.ended, err = companion.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it does not answer"))
	defer cancel()
	for {
		if answers(ctx, s.URL()) {
			return nil
		}
		select {
		case err := <-s.ended:
			s.process = nil
			return fmt.Errorf("it ended: %w\n%s", err, s.log)
		case <-ctx.Done():
			_ = s.Stop()
			return fmt.Errorf("%w\n%s", context.Cause(ctx), s.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// answers reports whether an HTTP server answers at the URL.
func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return true
}

// Stop ends the server as a crash does, and keeps its objects.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		return fmt.Errorf("the s3 server does not stop\n%s", s.log)
	}
	s.process = nil
	return nil
}

// Close ends the server and removes all it had.
func (s *Server) Close() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

// free finds an unused address.
func free(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// build asks make for the program, which builds it if it never was.
func build(ctx context.Context) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "Makefile")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return "", errors.New("there is no Makefile above the working directory")
		}
		root = filepath.Dir(root)
	}
	cmd := exec.CommandContext(ctx, "make", "--silent", "--no-print-directory", "-C", root, "s3-server") //nolint:gosec // our own
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build versitygw: %w\n%s", err, said.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1], nil
}
