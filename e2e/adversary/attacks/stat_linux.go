package attacks

import (
	"os"
	"syscall"
)

// device names the file system that a directory is on.
func device(dir string) (uint64, error) {
	var s syscall.Stat_t
	err := syscall.Stat(dir, &s)
	return s.Dev, err
}

// allocated is the room that a file takes on a file system. What is mounted below
// is on another: volumes, which are files of this one, and memory.
func allocated(info os.FileInfo, on uint64) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Dev == on {
		return s.Blocks * 512
	}
	return 0
}
