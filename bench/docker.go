package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/dormouse-run/dormouse/internal/dockerd"
)

// docker is a Docker of our own with one image. Its containers have no network,
// which is the quickest that Docker can be.
type docker struct{ *dockerd.Daemon }

const (
	dockerImage     = "bench:latest"
	dockerCommitted = "bench:committed"
	dockerBox       = "standing" // a container that lives as long as the daemon
)

// startDocker starts a daemon with an image of a root file system, and a
// container that waits for commands.
func startDocker(ctx context.Context, dir, rootfs string) (*docker, error) {
	daemon, err := dockerd.Start(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("compare with Docker: %w", err)
	}
	d := &docker{daemon}
	if err := errors.Join(d.load(ctx, dir, rootfs), d.stand(ctx)); err != nil {
		return nil, errors.Join(err, d.Stop(ctx))
	}
	return d, nil
}

// load makes an image of a directory.
func (d *docker) load(ctx context.Context, dir, rootfs string) error {
	archive := filepath.Join(dir, "image.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", rootfs, "-cf", archive, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("pack the image: %w: %s", err, out)
	}
	_, err := d.Do(ctx, "import", archive, dockerImage)
	return err
}

func (d *docker) stand(ctx context.Context) error {
	_, err := d.Do(ctx, "run", "--detach", "--init=false", "--network", "none", "--name", dockerBox, dockerImage, "/bin/sleep", "infinity")
	return err
}

// run is a command in a container of its own.
func (d *docker) run(ctx context.Context, command ...string) (string, error) {
	return d.runFrom(ctx, dockerImage, command...)
}

// runFrom is a command in a container of its own from some image.
func (d *docker) runFrom(ctx context.Context, image string, command ...string) (string, error) {
	return d.Do(ctx, append([]string{"run", "--rm", "--network", "none", image}, command...)...)
}

// commit makes an image of the running container.
func (d *docker) commit(ctx context.Context) error {
	_, err := d.Do(ctx, "commit", dockerBox, dockerCommitted)
	return err
}

// exec is a command in a container that is there.
func (d *docker) exec(ctx context.Context, command ...string) (string, error) {
	return d.Do(ctx, append([]string{"exec", dockerBox}, command...)...)
}
