// Package gvisor runs sessions in gVisor: each sandbox is a kernel of its own in
// user space, with our runner as its first process. gVisor is compiled into this
// program, which starts itself once more as that kernel; nothing is installed.
//
// A sandbox outlives the server and is found again by the next one. It can be
// frozen: its processes are written to a memory image, and the sandbox of the
// next generation carries on with them. The files of a session lie in a volume
// of their own and outlive its sandboxes.
//
// What gVisor notes of its kernels lies in /run/dormouse/INSTANCE and ends with
// them when the machine does. Under Dir:
//
//	root/                the root file system made from this machine
//	boxes/ID/            one sandbox: its runner's state, and the slot that the
//	                     workspace is mounted in
//	lost/                the files of sessions that nobody knows, for a week
//	sessions/SESSION/    the volume of a session, which sandbox it has, and the
//	                     memory image of its last hibernation
package gvisor

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Options says where a driver keeps what it makes, and what it allows.
type Options struct {
	// Dir holds everything.
	Dir string
	// Instance tells the sandboxes of one data directory from those of another.
	Instance string
	// Runner is the path of the dormouse-runner binary.
	Runner string
	// Program is what is started as a kernel: a program that calls Main first. It
	// is this one if empty.
	Program string
	// Root is the directory of an image that sandboxes start from, and Env its
	// environment. They start from this machine's own programs if it is empty.
	Root string
	Env  []string
	// Limits are those of every sandbox.
	Limits Limits
	// Spares is how many sandboxes are kept started for sessions to come.
	Spares int
	// Outlet serves what a session's sandbox sends out, until ctx ends. Without it
	// sandboxes have no network.
	Outlet func(ctx context.Context, id dormouse.SessionID, l net.Listener) error
	Logger *slog.Logger
}

// Limits bounds a sandbox. Zero is no limit.
type Limits struct {
	CPUs   float64
	Memory int64 // bytes
	Pids   int64
	Disk   int64 // bytes of all files of a session
	Inodes int64
	Files  uint64 // open at once in one process
}

// DefaultLimits fit a coding agent on a small machine.
func DefaultLimits() Limits {
	return Limits{CPUs: 2, Memory: 4 << 30, Pids: 1024, Disk: 10 << 30, Inodes: 1 << 20, Files: 65536}
}

const (
	// answerWithin bounds how long a runner that lives may take to answer.
	answerWithin = 15 * time.Second
	// undoWithin bounds the clearing away of what could not be finished.
	undoWithin = 10 * time.Second

	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
