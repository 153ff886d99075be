package inside

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// containerCaps are the default capabilities of containers.
const containerCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FSETID | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_MKNOD | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETFCAP |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_KILL | 1<<unix.CAP_AUDIT_WRITE

// spawner starts processes from a dedicated thread. A process inherits the capabilities
// of the thread that starts it, and PDEATHSIG is sent when that thread ends.
type spawner struct {
	once sync.Once
	work chan spawnRequest // nil if the thread could not be set up
	err  error             // why it could not
}

type spawnRequest struct {
	cmd *exec.Cmd
	err chan error
}

// startCommand starts cmd. Every process of the runner is started here.
func (r *Runner) startCommand(cmd *exec.Cmd) error {
	if err := r.limitPids(cmd); err != nil {
		return err
	}
	if tied := cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0; !tied && !r.opts.DropCaps {
		return r.atLimit(cmd.Start())
	}
	s := &r.spawner
	s.once.Do(func() {
		ready := make(chan error)
		s.work = make(chan spawnRequest)
		r.draining.Go(func() { s.serve(r.opts.DropCaps, ready) })
		s.err = <-ready
	})
	if s.err != nil {
		return s.err
	}
	w := spawnRequest{cmd, make(chan error)}
	s.work <- w
	return r.atLimit(<-w.err)
}

// close ends the thread and the processes that die with it. No process may be started
// after it.
func (s *spawner) close() {
	s.once.Do(func() {})
	if s.work != nil && s.err == nil {
		close(s.work)
	}
}

func (s *spawner) serve(drop bool, ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if unix.Gettid() == unix.Getpid() {
		// The main thread does not end before the process. While we occupy it, another
		// goroutine runs on another thread.
		var other sync.WaitGroup
		other.Go(func() { s.serve(drop, ready) })
		other.Wait()
		runtime.UnlockOSThread()
		return
	}
	if drop {
		if err := dropCaps(); err != nil {
			ready <- fmt.Errorf("drop capabilities: %w", err)
			return
		}
	}
	ready <- nil
	for w := range s.work {
		w.err <- w.cmd.Start()
	}
}

// dropCaps restricts the calling thread, and what it starts, to containerCaps.
func dropCaps() error {
	for c := range 64 {
		if containerCaps&(uint64(1)<<c) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err == unix.EINVAL {
			break // the kernel knows no more
		}
		if err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		mask := uint32(containerCaps >> (32 * i))
		data[i].Effective &= mask
		data[i].Permitted &= mask
		data[i].Inheritable &= mask
	}
	return unix.Capset(&header, &data[0])
}
