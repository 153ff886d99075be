package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// boot runs the machine until it ends and reports what it said. Nothing of what it
// writes is kept.
func (m machine) boot(ctx context.Context, root, disk, dir string) (*report, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	console := filepath.Join(dir, "console")
	q := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", m.accel, "-cpu", "max", "-m", strconv.Itoa(m.memory), "-smp", "2",
		"-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none", "-serial", "file:"+console, "-serial", "stdio",
		"-kernel", filepath.Join(root, "vmlinuz"), "-initrd", filepath.Join(root, "initrd"), "-append", "root=/dev/vda rw console=ttyS0 quiet panic=1",
		"-drive", "file="+filepath.Join(root, "disk")+",format=raw,if=virtio,snapshot=on,cache=unsafe",
		"-drive", "file="+disk+",format=raw,if=virtio,readonly=on")
	q.Env = append(os.Environ(), "TMPDIR="+dir)
	q.Stderr = os.Stderr
	said, err := q.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := q.Start(); err != nil {
		return nil, fmt.Errorf("boot the machine: %w", err)
	}
	r := &report{steps: m.steps}
	err = r.read(said, os.Stdout)
	if err != nil {
		stop()
	}
	if err = errors.Join(err, q.Wait()); err == nil && !r.done {
		err = errors.New("the machine ended before all was run")
	}
	if err != nil {
		raw, _ := os.ReadFile(console) // what there is
		return r, fmt.Errorf("%w; the end of its console:\n%s", err, raw[max(0, len(raw)-4000):])
	}
	return r, nil
}

// report is what was seen in the machine.
type report struct {
	steps          []string // those that were wanted
	kernel, cgroup string
	cases, failed  int
	ended          []string
	done           bool

	before [2]int // cases and failed when the step began
}

// read takes in what the machine says, until it ends, and passes it on.
func (r *report) read(from io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Fprintln(to, line)
		if err := r.take(line); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (r *report) take(line string) error {
	what, rest, _ := strings.Cut(line, ": ")
	switch what {
	case "vm-kernel":
		r.kernel = rest
	case "vm-cgroup":
		r.cgroup = rest
	case "vm-done":
		r.done = true
	case "--- PASS":
		r.count(1, 0)
	case "--- FAIL", "--- SKIP": // a test that is skipped here would be run nowhere
		r.count(1, 1)
	case "wall":
		var cases, broke int
		if _, err := fmt.Sscanf(rest, "cases=%d broke=%d", &cases, &broke); err == nil {
			r.count(cases, broke)
		}
	case "vm-step":
		var name string
		var code, seconds int
		if _, err := fmt.Sscanf(rest, "%s %d %d", &name, &code, &seconds); err != nil {
			return fmt.Errorf("read %q: %w", line, err)
		}
		r.end(name, code)
	}
	return nil
}

func (r *report) count(cases, failed int) {
	r.cases += cases
	r.failed += failed
}

// end counts a step that has ended. One that failed of itself, and not because one
// of its cases did, is a case that failed, and so is one that had none.
func (r *report) end(name string, code int) {
	switch {
	case name == "doctor", name == "demo":
		r.count(1, min(code, 1))
	case r.cases == r.before[0], code != 0 && r.failed == r.before[1]:
		r.count(1, 1)
	}
	r.before = [2]int{r.cases, r.failed}
	r.ended = append(r.ended, name)
}

func (r *report) String() string {
	return fmt.Sprintf("vm: kernel=%s cgroup=%s cases=%d failed=%d", r.kernel, r.cgroup, r.cases, r.failed)
}

// verdict is nil if all that was wanted was run, and was as it must be.
func (r *report) verdict() error {
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d of %d cases failed", r.failed, r.cases)
	case r.cgroup != "2":
		return fmt.Errorf("the machine has cgroup %q", r.cgroup)
	case !slices.Equal(r.ended, r.steps):
		return fmt.Errorf("of %v only %v ended", r.steps, r.ended)
	}
	return nil
}
