package sandbox

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
)

// ErrNoMemoryImage says that of what ran in a session nothing is there to run on.
var ErrNoMemoryImage = errors.New("nothing is kept of what ran")

// Brancher is implemented by drivers in which a session can begin with what runs in
// another.
type Brancher interface {
	// Branch must keep, for a session that never had a sandbox, a copy of all that
	// another one hibernates with since a generation, but for its workspace: what ran,
	// its home directory and its temporary files. The first sandbox of that session
	// must then carry on with it if its workspace is sealed: the files must be those
	// of the other when it fell asleep. The other must not change, and nothing may be
	// shared that either could use to pass for the other. It returns ErrNothingKept if
	// the other does not sleep since that generation, or without anything that ran.
	Branch(ctx context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID) error
}
