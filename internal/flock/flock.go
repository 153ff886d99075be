//go:build unix

// Package flock locks open files against other processes, and against other open files of
// this one. The kernel releases a lock when the file is closed or the process ends,
// however it ends.
package flock

import (
	"errors"
	"os"
	"syscall"
)

// How a file is locked.
const (
	Shared    = syscall.LOCK_SH
	Exclusive = syscall.LOCK_EX
)

// Lock waits until f can be locked. With syscall.LOCK_NB in how it fails with
// syscall.EWOULDBLOCK instead of waiting.
func Lock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// TryLock locks f unless the lock of another process conflicts, and reports whether it
// did.
func TryLock(f *os.File, how int) (bool, error) {
	err := Lock(f, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
