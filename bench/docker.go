package main

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

// docker is a Docker of our own: its daemon listens on a socket that nobody else
// knows, keeps everything in one directory, and leaves the network of this
// machine alone. Its containers have none, which is the quickest that Docker can
// be.
type docker struct {
	client string // the program
	dir    string
	daemon *exec.Cmd
	ended  chan error
}

const (
	dockerImage = "bench:latest"
	dockerBox   = "standing" // a container that lives as long as the daemon
)

// startDocker starts a daemon with an image of a root file system, and a
// container that waits for commands.
func startDocker(ctx context.Context, dir, rootfs string) (*docker, error) {
	program, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, fmt.Errorf("there is no Docker to compare with: %w; install docker.io", err)
	}
	d := &docker{dir: dir, client: filepath.Join("/usr/bin", "docker")}
	if _, err := os.Stat(d.client); err != nil { // of another version than the daemon, perhaps
		if d.client, err = exec.LookPath("docker"); err != nil {
			return nil, fmt.Errorf("there is no Docker to compare with: %w; install docker.io", err)
		}
	}
	var tries []error
	for _, driver := range []string{"overlay2", "vfs"} {
		err := d.start(ctx, program, driver)
		if err == nil {
			if err := errors.Join(d.load(ctx, rootfs), d.stand(ctx)); err != nil {
				return nil, errors.Join(err, d.stop())
			}
			return d, nil
		}
		tries = append(tries, fmt.Errorf("with storage driver %s: %w", driver, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("Docker does not start: %w", errors.Join(tries...)) //nolint:staticcheck // a name
}

func (d *docker) start(ctx context.Context, program, driver string) error {
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	settings := filepath.Join(d.dir, "daemon.json") // and not those of this machine
	if err := os.WriteFile(settings, []byte("{}"), 0o600); err != nil {
		return err
	}
	d.daemon = exec.Command(program, "--host", "unix://"+d.socket(), "--data-root", filepath.Join(d.dir, "root-"+driver),
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
		if _, err := d.do(ctx, "version"); err == nil {
			return nil
		}
		select {
		case err := <-d.ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w; the daemon said:\n%s", err, said)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), d.stop())
		case <-time.After(moment):
		}
		if time.Since(began) > patience {
			return errors.Join(errors.New("the daemon never answered"), d.stop())
		}
	}
}

// limits is what the limits of its containers are below, on this machine.
func (d *docker) limits() string { return "/dormouse-bench-" + filepath.Base(d.dir) }

func (d *docker) socket() string { return filepath.Join(d.dir, "socket") }

// load makes an image of a directory.
func (d *docker) load(ctx context.Context, rootfs string) error {
	archive := filepath.Join(d.dir, "image.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", rootfs, "-cf", archive, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("pack the image: %w: %s", err, out)
	}
	_, err := d.do(ctx, "import", archive, dockerImage)
	return err
}

func (d *docker) stand(ctx context.Context) error {
	_, err := d.do(ctx, "run", "--detach", "--init=false", "--network", "none", "--name", dockerBox, dockerImage, "/bin/sleep", "infinity")
	return err
}

// run is a command in a container of its own.
func (d *docker) run(ctx context.Context, command ...string) (string, error) {
	return d.do(ctx, append([]string{"run", "--rm", "--network", "none", dockerImage}, command...)...)
}

// exec is a command in a container that is there.
func (d *docker) exec(ctx context.Context, command ...string) (string, error) {
	return d.do(ctx, append([]string{"exec", dockerBox}, command...)...)
}

func (d *docker) do(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.client, append([]string{"--host", "unix://" + d.socket(), "--config", d.dir}, args...)...)
	return output(cmd)
}

// stop ends the daemon and all its containers.
func (d *docker) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if ids, err := d.do(ctx, "ps", "--all", "--quiet"); err == nil && ids != "" {
		_, _ = d.do(ctx, append([]string{"rm", "--force"}, strings.Fields(ids)...)...)
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

// output runs a program and returns what it printed, and fails with what it
// complained about.
func output(cmd *exec.Cmd) (string, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
