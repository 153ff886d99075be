//go:build !linux

package main

import "errors"

// moveIn refuses: only the sandboxes of Linux have a slot.
func moveIn(string, string) error { return errors.New("-slot needs Linux") }
