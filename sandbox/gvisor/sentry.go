//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	sentrybox "gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
)

// rootAccess is where changes to the root file system go: to memory, unless packages are
// installed.
func rootAccess(m boxSpec) []string {
	switch {
	case m.build:
		return []string{"--overlay2=none", "--file-access=shared"}
	case m.Limits.Memory > 0:
		return []string{"--overlay2=root:memory,size=" + strconv.FormatInt(m.Limits.Memory/2, 10)} // the rest is for processes
	}
	return []string{"--overlay2=root:memory"}
}

// configure is how all our kernels run: without any network, with files of the host
// shared, and with a root file system as rootAccess says. Cgroups are managed here: gVisor
// would move this whole process into each. Those inside are version 2, since with version
// 1 gVisor counts only some of the processes.
func configure(dir, program string, root []string) (*config.Config, error) {
	prepare.Do(func() {
		log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
		// A kernel inherits our standard streams, which are not meant for it. The server
		// duplicates them before if it has to print.
		if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			os.Stdin, os.Stdout, os.Stderr = null, null, null
		}
		if program != "" {
			specutils.ExePath = program
		}
	})
	flags := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(flags)
	err := flags.Parse(append([]string{
		"--root=" + dir, "--platform=systrap", "--network=none", "--host-uds=open",
		"--file-access-mounts=shared", "--ignore-cgroups", "--in-sandbox-cgroup=v2",
	}, root...))
	if err != nil {
		return nil, fmt.Errorf("configure gVisor: %w", err)
	}
	return config.NewFromFlags(flags)
}

var prepare sync.Once

// sentry is one kernel and its file server. Neither is of use without the other.
type sentry struct {
	conf  *config.Config
	c     *container.Container
	proc  *pidfd.Process
	files *pidfd.Process // the file server
	// watch is set if its memory is watched already before it is opened.
	watch *cgroup.MemoryWatch
}

// newSentry starts a kernel in which nothing runs yet.
func newSentry(conf *config.Config, id string, spec *specs.Spec, bundle string) (*sentry, error) {
	c, err := container.New(conf, container.Args{ID: id, Spec: spec, BundleDir: bundle})
	if err != nil {
		return nil, fmt.Errorf("start a kernel: %w", err)
	}
	proc, err := pidfd.Open(c.SandboxPid())
	if err != nil {
		return nil, errors.Join(err, c.Destroy())
	}
	return &sentry{conf: conf, c: c, proc: proc, files: fileServer(c)}, nil
}

// findSentry finds a kernel that some server has started, nil if there is none.
func findSentry(conf *config.Config, id string) (*sentry, error) {
	c, err := container.Load(conf.RootDir, container.FullID{SandboxID: id, ContainerID: id}, container.LoadOpts{Exact: true, SkipCheck: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil && corruptState(conf.RootDir, id) {
		return nil, endUnrecorded(conf.RootDir, id)
	}
	if err != nil {
		return nil, fmt.Errorf("find the kernel: %w", err)
	}
	return &sentry{conf: conf, c: c, proc: runs(id, c.SandboxPid()), files: fileServer(c)}, nil
}

// program is the name of the runner in the sandbox. A server of another version has put it
// there if the sandbox is older than this one.
func (s *sentry) program() string { return filepath.Base(s.c.Spec.Process.Args[0]) }

// runs opens the process pid if it is the kernel id and has not ended.
func runs(id string, pid int) *pidfd.Process {
	if pid <= 0 {
		return nil
	}
	proc, err := pidfd.Open(pid)
	if err != nil {
		return nil
	}
	// After a reboot another process may have the pid.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.HasSuffix(line, []byte("\x00"+id+"\x00")) || proc.Ended() {
		proc.Close()
		return nil
	}
	return proc
}

// fileServer opens the file server of a kernel, nil if it has ended.
func fileServer(c *container.Container) *pidfd.Process {
	pid := c.GoferPid.Load()
	if pid <= 1 {
		return nil
	}
	proc, err := pidfd.Open(pid)
	if err != nil {
		return nil
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(line, []byte("gofer")) || !bytes.Contains(line, []byte(c.ID)) || proc.Ended() {
		proc.Close()
		return nil
	}
	return proc
}

func (s *sentry) alive() bool {
	return s != nil && s.proc != nil && !s.proc.Ended() && s.files != nil && !s.files.Ended()
}

// endWithFiles kills the kernel when its file server has ended, until ctx ends: nothing
// inside could open a file any more, and that would go unnoticed.
func (s *sentry) endWithFiles(ctx context.Context) {
	if s.files == nil || s.files.Wait(ctx) == nil {
		s.proc.Signal(unix.SIGKILL)
	}
}

// running reports whether the kernel was started, as far as its server came to note it.
func (s *sentry) running() bool {
	return s.c.Status == container.Running || s.c.Status == container.Paused
}

// pids are the processes of the kernel before it has started any.
func (s *sentry) pids() []int {
	pids := []int{s.c.SandboxPid()}
	if gofer := s.c.GoferPid.Load(); gofer > 0 {
		pids = append(pids, gofer)
	}
	return pids
}

func (s *sentry) start() error {
	if err := s.c.Start(s.conf); err != nil {
		return fmt.Errorf("start the sandbox: %w", err)
	}
	return nil
}

// restore restores a memory image. Processes run before all of it is read: the kernel
// keeps the files open, also once they have no name.
func (s *sentry) restore(image string) error {
	const direct, background = false, true
	if err := s.c.Restore(s.conf, image, direct, background, nil); err != nil {
		return fmt.Errorf("restore the sandbox: %w", err)
	}
	return nil
}

// pause pauses everything inside. Pausing twice is pausing once.
func (s *sentry) pause() error {
	if s.c.Status == container.Paused {
		return nil
	}
	return s.c.Pause()
}

func (s *sentry) resume() error {
	if s.c.Status != container.Paused {
		return nil
	}
	return s.c.Resume()
}

// save writes the memory of a paused kernel to an empty directory and leaves the
// kernel paused.
func (s *sentry) save(image string) error {
	err := s.c.Checkpoint(s.conf, image, sentrybox.CheckpointOpts{
		Compression: statefile.CompressionLevelNone, Resume: true, ExcludeCommittedZeroPages: true,
	})
	if err != nil {
		return fmt.Errorf("write the memory image: %w", err)
	}
	return nil
}

// imageFiles are what save writes.
var imageFiles = []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName}

// destroy ends the kernel and everything in it. It returns nil only once that is
// certain.
func (s *sentry) destroy(ctx context.Context) error {
	var processes []*pidfd.Process
	for _, p := range []*pidfd.Process{s.proc, s.files} {
		if p != nil {
			processes = append(processes, p)
		}
	}
	for _, p := range processes {
		p.Signal(unix.SIGKILL)
	}
	for _, p := range processes {
		if err := p.Wait(ctx); err != nil {
			return fmt.Errorf("end the kernel: %w", err)
		}
		p.Close()
	}
	s.proc, s.files = nil, nil
	if err := s.c.Destroy(); err != nil {
		return fmt.Errorf("clear away the kernel: %w", err)
	}
	return nil
}

// close detaches from the kernel, which lives on.
func (s *sentry) close() {
	_ = s.watch.Close()
	s.watch = nil
	for _, p := range []*pidfd.Process{s.proc, s.files} {
		if p != nil {
			p.Close()
		}
	}
	s.proc, s.files = nil, nil
}
