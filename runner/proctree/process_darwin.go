package proctree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stateZombie is SZOMB of <sys/proc.h>.
const stateZombie = 5

// Variable returns what name was in the environment the process was started
// with. Children inherit it unless they take care not to. macOS hides the environment
// of its own programs, /bin/sh among them, while System Integrity Protection is on.
func (p Process) Variable(name string) (string, bool) {
	_, env := p.arguments()
	for _, e := range env {
		if v, ok := bytes.CutPrefix(e, []byte(name+"=")); ok {
			return string(v), true
		}
	}
	return "", false
}

// Command is the words the process was started with, empty if they cannot be read.
func (p Process) Command() string {
	args, _ := p.arguments()
	return string(bytes.Join(args, []byte(" ")))
}

// arguments reads what the process was started with.
func (p Process) arguments() (args, env [][]byte) {
	b, err := unix.SysctlRaw("kern.procargs2", p.PID)
	if err != nil {
		return nil, nil
	}
	return splitArguments(b)
}

// splitArguments takes apart what kern.procargs2 returns: the number of arguments, the
// path of the program padded with zeros, then arguments and environment, each of them
// ended by a zero.
func splitArguments(b []byte) (args, env [][]byte) {
	const count = 4
	if len(b) < count {
		return nil, nil
	}
	n := int(binary.NativeEndian.Uint32(b))
	_, rest, _ := bytes.Cut(b[count:], []byte{0})
	words := bytes.Split(bytes.TrimLeft(rest, "\x00"), []byte{0})
	n = min(max(n, 0), len(words))
	args, env = words[:n], words[n:]
	for i, e := range env {
		if len(e) == 0 {
			env = env[:i]
			break
		}
	}
	return args, env
}

// List returns every process.
func List() ([]Process, error) {
	listed, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make([]Process, 0, len(listed))
	for i := range listed {
		all = append(all, fromKinfo(&listed[i]))
	}
	return all, nil
}

// lookAt reads one process, if it is there.
func lookAt(pid int) (Process, bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return Process{}, false
	}
	return fromKinfo(k), true
}

func fromKinfo(k *unix.KinfoProc) Process {
	p := Process{
		PID: int(k.Proc.P_pid), Parent: int(k.Eproc.Ppid), Zombie: k.Proc.P_stat == stateZombie,
		start: ticks(time.Unix(k.Proc.P_starttime.Sec, int64(k.Proc.P_starttime.Usec)*int64(time.Microsecond))),
	}
	p.Session, _ = unix.Getsid(p.PID)
	return p
}

func ticks(t time.Time) uint64 { return uint64(t.UnixMilli() / 10) } //nolint:gosec // after 1970

// TicksAt is a time in the hundredths of a second that processes are born in. It may be
// a tick early.
func TicksAt(t time.Time) uint64 { return ticks(t) - 1 }

// signal sends s to p and not to a later process with its pid.
func (p Process) signal(s unix.Signal) {
	if now, ok := lookAt(p.PID); ok && now.start == p.start {
		_ = unix.Kill(p.PID, s)
	}
}
