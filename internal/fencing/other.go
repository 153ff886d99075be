//go:build !linux

// Package fencing ends servers that still act after their lease. On this system a
// process cannot be identified for certain, so none is ended.
package fencing

import (
	"context"
	"errors"
)

// ErrUnproven means that a server which holds on cannot be ended.
var ErrUnproven = errors.New("the process that holds on cannot be proven to be that server")

// Register is the signatures of the servers of one data directory.
type Register struct{}

// Holder is another server that works under a lease.
type Holder struct {
	Incarnation uint64
	PID         int
}

// Open signs in a directory.
func Open(string, string) (*Register, error) { return new(Register), nil }

// Sign says under which incarnation this server works from now on.
func (r *Register) Sign(uint64) error { return nil }

// Close takes the signature away.
func (r *Register) Close() error { return nil }

// Others lists the other servers that hold a signature, of which none is known here.
func (r *Register) Others() ([]Holder, error) { return nil, nil }

// Stopped reports whether the process stands still by a signal.
func (h Holder) Stopped() bool { return false }

// End ends a server that holds on.
func (r *Register) End(context.Context, Holder, func(context.Context) (bool, error)) (bool, error) {
	return false, ErrUnproven
}
