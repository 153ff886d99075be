// Package cgroup limits what a sandbox takes of this machine, with version 1 or version 2
// of control groups: memory, CPU, threads. It watches memory so that the server can kill
// processes before the kernel kills the sandbox, and gives CPU priority to sandboxes that
// a client waits for.
package cgroup
