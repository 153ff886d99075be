package attacks

import (
	"os"
	"syscall"
)

// allocated is the room that a file takes on the disk.
func allocated(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return 0
}
