// Package dockerd starts a real Docker that lives no longer than the process that
// started it asks it to: for tests and measurements. Its daemon listens on a
// private socket, keeps everything in one directory, and leaves the network of
// this machine alone: its containers have none.
package dockerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Daemon is a private Docker daemon.
type Daemon struct {
	client string // the program
	dir    string
	daemon *exec.Cmd
	ended  chan error
}

const (
	// patience bounds how long a daemon may take to start or to stop.
	patience = time.Minute
	moment   = 20 * time.Millisecond
)

// Start starts a daemon that keeps everything in a directory.
func Start(ctx context.Context, dir string) (*Daemon, error) {
	program, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, fmt.Errorf("there is no Docker: %w; install docker.io", err)
	}
	d := &Daemon{dir: dir, client: filepath.Join("/usr/bin", "docker")}
	if _, err := os.Stat(d.client); err != nil { // of another version than the daemon, perhaps
		if d.client, err = exec.LookPath("docker"); err != nil {
			return nil, fmt.Errorf("there is no Docker: %w; install docker.io", err)
		}
	}
	var tries []error
	for _, driver := range []string{"overlay2", "vfs"} {
		err := d.start(ctx, program, driver)
		if err == nil {
			return d, nil
		}
		tries = append(tries, fmt.Errorf("with storage driver %s: %w", driver, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("Docker does not start: %w", errors.Join(tries...)) //nolint:staticcheck // a name
}

func (d *Daemon) start(ctx context.Context, program, driver string) error {
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	settings := filepath.Join(d.dir, "daemon.json") // and not those of this machine
	if err := os.WriteFile(settings, []byte("{}"), 0o600); err != nil {
		return err
	}
	d.daemon = exec.Command(program, "--host", "unix://"+d.socket(), "--data-root", filepath.Join(d.dir, "root-"+driver), //nolint:gosec,noctx // it is stopped
		"--exec-root", filepath.Join(d.dir, "exec"), "--pidfile", filepath.Join(d.dir, "pid"), "--storage-driver", driver,
		"--cgroup-parent", d.limits(), "--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--config-file", settings)
	d.daemon.Stdout, d.daemon.Stderr = log, log
	d.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us alone
	if err := d.daemon.Start(); err != nil {
		return err
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.daemon.Wait() }()
	for began := time.Now(); ; {
		if _, err := d.Do(ctx, "version"); err == nil {
			return nil
		}
		select {
		case err := <-d.ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w; the daemon said:\n%s", err, said)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), d.Stop(ctx))
		case <-time.After(moment):
		}
		if time.Since(began) > patience {
			return errors.Join(errors.New("the daemon never answered"), d.Stop(ctx))
		}
	}
}

// limits is what the limits of its containers are below, on this machine.
func (d *Daemon) limits() string { return "/dormouse-dockerd-" + filepath.Base(d.dir) }

func (d *Daemon) socket() string { return filepath.Join(d.dir, "socket") }

// Do asks the daemon for something and returns what was printed.
func (d *Daemon) Do(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.client, append([]string{"--host", "unix://" + d.socket(), "--config", d.dir}, args...)...) //nolint:gosec // our own arguments
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Stop ends the daemon and all its containers, whether the context has ended or
// not.
func (d *Daemon) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if ids, err := d.Do(ctx, "ps", "--all", "--quiet"); err == nil && ids != "" {
		_, _ = d.Do(ctx, append([]string{"rm", "--force"}, strings.Fields(ids)...)...)
	}
	_ = d.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-ctx.Done():
		_ = d.daemon.Process.Kill()
		<-d.ended
		return errors.New("the Docker daemon did not end by itself")
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + d.limits()) // the pattern is a good one
	for _, dir := range append(left, "/sys/fs/cgroup"+d.limits()) {
		_ = os.Remove(dir)
	}
	return nil
}
