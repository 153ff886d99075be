//go:build unix

package runner

import "syscall"

// How the files of a tree are opened: no link is followed and no open blocks.
const (
	openDirectory = syscall.O_DIRECTORY
	openNoFollow  = syscall.O_NOFOLLOW
	openNonblock  = syscall.O_NONBLOCK
)
