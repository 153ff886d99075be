package sandbox

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
)

// ErrNoMemoryImage says that a session has no memory image to restore.
var ErrNoMemoryImage = errors.New("nothing is kept of what ran")

// Brancher is implemented by drivers in which a session can begin with the processes of
// another.
type Brancher interface {
	// Branch must keep, for a session that never had a sandbox, a copy of everything that
	// another one has hibernated with at a generation, except its workspace: processes,
	// home directory and temporary files. The first sandbox of that session must then be
	// restored from it if its workspace is sealed: the files must be those of the other
	// when it hibernated. The other must not change, and nothing may be shared that either
	// could use to impersonate the other. It returns ErrNoMemoryImage if the other is not
	// hibernated at that generation, or without processes.
	Branch(ctx context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID) error
}
