package inside

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// usual are the capabilities that a container usually has.
const usual = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FSETID | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_MKNOD | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETFCAP |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_KILL | 1<<unix.CAP_AUDIT_WRITE

// spawner starts processes from a thread of its own. A process inherits the
// capabilities of the thread that starts it, and one that is to die with its
// parent dies with that thread.
type spawner struct {
	once sync.Once
	work chan spawning // nil if the thread could not be had
	err  error         // why it could not
}

type spawning struct {
	cmd *exec.Cmd
	err chan error
}

// startCommand starts cmd. Everything that the runner starts begins here.
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
		s.work = make(chan spawning)
		r.draining.Go(func() { s.serve(r.opts.DropCaps, ready) })
		s.err = <-ready
	})
	if s.err != nil {
		return s.err
	}
	w := spawning{cmd, make(chan error)}
	s.work <- w
	return r.atLimit(<-w.err)
}

// close ends the thread, and with it what was to die with it. Nothing may be
// started any more.
func (s *spawner) close() {
	s.once.Do(func() {})
	if s.work != nil && s.err == nil {
		close(s.work)
	}
}

func (s *spawner) serve(drop bool, ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if unix.Gettid() == unix.Getpid() {
		// The first thread stands for the whole process, and does not end. While we
		// hold it, another goroutine is on another.
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

// dropCaps leaves the calling thread, and what it starts, the usual capabilities
// at most.
func dropCaps() error {
	for c := range 64 {
		if usual&(uint64(1)<<c) != 0 {
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
		mask := uint32(usual >> (32 * i))
		data[i].Effective &= mask
		data[i].Permitted &= mask
		data[i].Inheritable &= mask
	}
	return unix.Capset(&header, &data[0])
}
