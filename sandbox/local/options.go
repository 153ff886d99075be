// Package local runs a session's commands as ordinary processes of this
// machine, with the rights of the server.
//
// IT ISOLATES NOTHING. Whatever an agent is talked into, it can do to this
// machine, its files and its network, as the user who started the server. It is
// for development, and for machines that are themselves a sandbox.
//
// What it does promise is what every driver promises. A sandbox is a runner
// process and all it started. It outlives the server and is found again by the
// next one; it is called gone only once its runner is dead and every process
// that carries its mark was killed. A process that hides from its parent and
// also wipes its environment, while the runner is killed from outside, is
// beyond what this package can see.
//
// The files of a session lie in Dir/workspaces and outlive its sandboxes. A
// workspace that is made from layers is a copy. Nothing can be paused: a snapshot
// of files that are being written to may be of several instants.
package local

import "log/slog"

// Options says where a driver keeps what it makes.
type Options struct {
	// Dir holds workspaces, homes, and the state of sandboxes.
	Dir string
	// Instance tells the processes of one data directory from those of another.
	Instance string
	// Runner is the path of the dormouse-runner binary.
	Runner string
	// SearchPath is the PATH of commands, empty for the usual one. Nothing else
	// of the server's environment reaches them.
	SearchPath string
	Logger     *slog.Logger
}
