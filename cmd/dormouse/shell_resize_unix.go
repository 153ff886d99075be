//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// resized returns a channel that says when the terminal may have another size.
func resized() (changed <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
