//go:build !linux

// Package holdback reserves disk space for deletions.
package holdback

// File reserves nothing on this system.
type File struct{}

// Open reserves nothing.
func Open(string) (*File, error) { return nil, nil } //nolint:nilnil // a nil one releases nothing

// Release has nothing to release.
func (*File) Release() bool { return false }

// Close has nothing to close.
func (*File) Close() error { return nil }
