// Package gvisor runs sessions in gVisor: each sandbox is a kernel of its own in
// user space, with our runner as its first process. gVisor is compiled into this
// program, which starts itself once more as that kernel; nothing is installed.
//
// A sandbox outlives the server and is found again by the next one. It can be
// frozen: its processes are written to a memory image, and the sandbox of the
// next generation is restored from it. The files of a session lie in a volume
// of their own and outlive its sandboxes.
//
// The state files of gVisor are in /run/dormouse/INSTANCE, which is empty after a
// reboot. Under Dir:
//
//	root/                the root file system made from this machine
//	boxes/ID/            one sandbox: its runner's state, and the slot that the
//	                     workspace is mounted in
//	packages/KEY/ID/     a package layer
//	lost/                the files of unknown sessions, for a week
//	sessions/SESSION/    the volume of a session, which sandbox and which
//	                     workspace it has, the memory image of its last
//	                     hibernation, and what its files were like at the last
//	                     snapshots
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
	// Image is what sandboxes start from whose session chose nothing else; Root is
	// its directory, Digest its digest and Env its environment. They start from this
	// machine's own programs if it is empty.
	Image  string
	Root   string
	Digest string
	Env    []string
	// Fetch returns the root file system that a reference leads to; if a digest is
	// given, the one of that digest, wherever the reference leads now. Without it
	// there is no other image.
	Fetch func(ctx context.Context, ref, digest string) (Image, error)
	// Allow refuses an image that a session may not choose. Without it there is no
	// choice.
	Allow func(ref string) error
	// SearchPath is the PATH of this machine. What is below /usr in it is part of
	// that of sandboxes that have this machine's programs.
	SearchPath string
	// Limits are those of a sandbox whose session says nothing, and the most that it
	// can say. Zero is no limit.
	Limits dormouse.Limits
	// Spares is how many sandboxes are kept ready for new sessions.
	Spares int
	// ServeEgress serves the outbound connections of a sandbox until ctx ends. Without it
	// sandboxes have no network.
	ServeEgress func(ctx context.Context, from EgressPolicy, l net.Listener) error
	// PackageEnv is what package managers are told of where packages come from,
	// NAME=value.
	PackageEnv func() []string
	Logger     *slog.Logger
}

// EgressPolicy says which session traffic is from, and where it may go.
type EgressPolicy struct {
	Session         dormouse.SessionID
	Network         dormouse.Network // on or limited
	Hosts           []string
	PackageManagers bool
}

// Image is a root file system and what its image says of it.
type Image struct {
	Dir    string
	Digest string
	Env    []string // NAME=value
}

// DefaultLimits fit a coding agent on a small machine.
func DefaultLimits() dormouse.Limits {
	return dormouse.Limits{CPUs: 2, Memory: 4 << 30, Pids: 1024, Disk: 10 << 30, Inodes: 1 << 20, Files: 65536}
}

const (
	// answerWithin bounds how long a runner that lives may take to answer.
	answerWithin = 15 * time.Second
	// undoWithin bounds the cleanup after a failure.
	undoWithin = 10 * time.Second

	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
