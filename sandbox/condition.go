package sandbox

import "errors"

// Condition is whether the files of a session can be believed to be what was
// written to them.
type Condition string

// The conditions.
const (
	// Sound files are what was written to them.
	Sound Condition = "sound"
	// Cut files were in use when the machine ended: of what was written since they
	// were last synced, anything may be missing, old or torn.
	Cut Condition = "cut"
	// Failed files lie on a disk that did not take what was written, or their file
	// system has given up its journal: what is read may never have been on the disk.
	// No snapshot is taken of them, and no sandbox sleeps over them.
	Failed Condition = "failed"
)

// ErrFailed means that the files of a session have failed, as the condition of
// that name says, and says why.
var ErrFailed = errors.New("the disk of the session's files has failed")

// ErrUnsound means that the files of a session must be recovered before anything
// else is done with them.
var ErrUnsound = errors.New("the session's files were cut off or have failed, and are not recovered yet")
