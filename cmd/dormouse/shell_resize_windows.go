package main

import "time"

// resized returns a channel that says when the terminal may have another size: Windows
// sends no signal, so it is looked at every second.
func resized() (changed <-chan time.Time, stop func()) {
	t := time.NewTicker(time.Second)
	return t.C, t.Stop
}
