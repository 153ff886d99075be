// Package atomicfile writes files atomically: after a crash or a power cut a file is either
// complete or not there.
package atomicfile

import (
	"errors"
	"os"
	"runtime"
)

// Step is how far a write has come.
type Step int

// The steps, in order. After the last the file is durable.
const (
	Written Step = iota // the temporary file is written, not synced
	Synced              // it is synced, not renamed
	Renamed             // it has its name, its directory is not synced
	Durable
)

// File says how to write one file.
type File struct {
	Path string
	Perm os.FileMode
	// Temp is the directory for the temporary file, on the same file system as
	// Path; empty means that of Path. What a crash leaves there is the caller's
	// to sweep, with Sweep.
	Temp string
	// After, if not nil, is called after each step.
	After func(Step)
}

// Write makes path hold data, durably, or leaves it as it was.
func Write(path string, data []byte, perm os.FileMode) error {
	return File{Path: path, Perm: perm}.Write(data)
}

// Write makes the file hold data, durably, or leaves it as it was.
func (f File) Write(data []byte) error {
	d, err := f.Draft()
	if err != nil {
		return err
	}
	if _, err := d.Write(data); err != nil {
		return errors.Join(err, d.Drop())
	}
	return d.Commit(f.Path)
}

// SyncDir makes the names in dir durable. Windows cannot sync a directory; names are
// assumed to be as durable as files there.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncFile makes a file durable.
func SyncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
