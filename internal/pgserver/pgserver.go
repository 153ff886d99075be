// Package pgserver starts a real PostgreSQL that ends with the process that started it, for
// tests and measurements.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/internal/companion"
)

// Mode is how a server is told to stop.
type Mode syscall.Signal

// The modes, as PostgreSQL names them.
const (
	// Fast ends every connection and writes what is in memory to the disk.
	Fast = Mode(syscall.SIGINT)
	// Immediate just ends, as a crash does; the next start recovers.
	Immediate = Mode(syscall.SIGQUIT)
)

// patience bounds how long a server may take to start or to stop.
const patience = 30 * time.Second

// Server is a PostgreSQL that listens on a socket in a directory of its own.
// Its methods are not for several goroutines at once.
type Server struct {
	bin, dir string
	settings []string
	cred     *syscall.Credential // nil: our own user

	process *os.Process
	ended   <-chan error // how the process ended, once
	log     *companion.Tail
}

// Start makes a new database cluster and serves it. Settings are of the form
// "name=value", as in postgresql.conf.
func Start(ctx context.Context, settings ...string) (_ *Server, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start postgres: %w", err)
		}
	}()
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	cred, err := credential()
	if err != nil {
		return nil, err
	}
	// Not where tests keep theirs: the name of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, settings: settings, cred: cred, log: new(companion.Tail)}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), //nolint:gosec // the programs of the machine
		"-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: cred}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.start(ctx)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// start runs the server and waits until it answers.
func (s *Server) start(ctx context.Context) error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "restore_command=false", "-c", "hot_standby=off"}
	for _, set := range s.settings {
		args = append(args, "-c", set)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin, "postgres"), args...) //nolint:gosec // as above
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.log, s.log
	var err error
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	if s.process, s.ended, err = companion.Start(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("postgres does not answer"))
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case ended := <-s.ended:
			s.process = nil
			return fmt.Errorf("postgres ended: %w\n%s", ended, s.log)
		case <-ctx.Done():
			_ = s.stop(Immediate)
			return fmt.Errorf("%w: %w\n%s", context.Cause(ctx), err, s.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// DSN says how to connect to a database as its superuser.
func (s *Server) DSN(db string) string {
	return fmt.Sprintf("host=%s user=postgres dbname=%s", s.dir, db)
}

// URL is DSN as a URL, for programs that take nothing else.
func (s *Server) URL(db string) string {
	return "postgres:///" + db + "?" + url.Values{"host": {s.dir}, "user": {"postgres"}}.Encode()
}

// Socket is where the server listens.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// CreateDB makes a database, a copy of template if that is not empty. There must be no
// connections to the template.
func (s *Server) CreateDB(ctx context.Context, name, template string) error {
	text := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		text += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	return s.Exec(ctx, "postgres", text)
}

// DropDB removes a database and closes all connections to it.
func (s *Server) DropDB(ctx context.Context, name string) error {
	return s.Exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// Exec runs a statement in a database.
func (s *Server) Exec(ctx context.Context, db, text string) error {
	c, err := pgx.Connect(ctx, s.DSN(db))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", db, err)
	}
	_, err = c.Exec(ctx, text)
	return errors.Join(err, c.Close(ctx))
}

// Dir is a directory that the server may write to.
func (s *Server) Dir() string { return s.dir }

// Run starts another program as the server's user and in its directory, which
// like the server lives no longer than this process. Call stop to end it.
func (s *Server) Run(ctx context.Context, name string, args ...string) (stop func(), err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) //nolint:gosec // what the caller says
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	process, ended, err := companion.Start(cmd, syscall.SIGQUIT)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	return func() {
		_ = process.Kill()
		<-ended
	}, nil
}

// Restart stops the server and starts it again, on what is on its disk.
func (s *Server) Restart(ctx context.Context, m Mode) error {
	if err := s.stop(m); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	return nil
}

// Save copies the databases as they are now, for Restore.
func (s *Server) Save(ctx context.Context) error {
	if err := s.stop(Fast); err != nil {
		return fmt.Errorf("save databases: %w", err)
	}
	if err := replace(ctx, s.saved(), s.data()); err != nil {
		return fmt.Errorf("save databases: %w", err)
	}
	return s.start(ctx)
}

// Restore brings the databases back to what Save copied, like a failover to a replica that
// lags behind.
func (s *Server) Restore(ctx context.Context) error {
	if err := s.stop(Immediate); err != nil {
		return fmt.Errorf("restore databases: %w", err)
	}
	if err := replace(ctx, s.data(), s.saved()); err != nil {
		return fmt.Errorf("restore databases: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.data(), "recovery.signal"), nil, 0o644); err != nil { //nolint:gosec // the server reads it
		return err
	}
	return s.start(ctx)
}

func (s *Server) saved() string { return filepath.Join(s.dir, "saved") }

// replace makes one directory a copy of another, with all its owners.
func replace(ctx context.Context, to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil { //nolint:gosec // our own directories
		return fmt.Errorf("copy: %w\n%s", err, out)
	}
	return nil
}

// Stop ends the server and removes all it had.
func (s *Server) Stop() error {
	return errors.Join(s.stop(Immediate), os.RemoveAll(s.dir))
}

func (s *Server) stop(m Mode) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(syscall.Signal(m)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended: // an immediate end is an error, as it should be
	case <-time.After(patience):
		return fmt.Errorf("postgres does not stop\n%s", s.log)
	}
	s.process = nil
	return nil
}

// programs finds the directory with the newest PostgreSQL of this machine.
// Debian keeps it out of the path.
func programs() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("postgres is not installed"), err)
	}
	return filepath.Dir(found[len(found)-1]), nil
}
