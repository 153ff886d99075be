package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Condition says whether the files of a session are what was written to them.
type Condition string

// The conditions.
const (
	// Sound files are what was written to them.
	Sound Condition = "sound"
	// Cut files were in use at a power cut: whatever was written since they were last
	// synced may be missing, old or corrupt.
	Cut Condition = "cut"
	// Failed files are on a disk that has failed a write, or their file system has aborted
	// its journal: what is read may never have been on the disk. No snapshot is taken of
	// them, and no sandbox hibernates with them.
	Failed Condition = "failed"
)

// ErrFailed means that the files of a session have the condition Failed, and says why.
var ErrFailed = errors.New("the disk of the session's files has failed")

// ErrUnsound means that the files of a session must be recovered before anything
// else is done with them.
var ErrUnsound = errors.New("the session's files were cut off or have failed, and are not recovered yet")

// ErrSnapshotLost means that the files of a snapshot can never be read again, as opposed to
// those of a store that cannot be reached.
var ErrSnapshotLost = errors.New("the snapshot has lost files for good")

// Syncer is implemented by drivers whose files can be made durable while they are in use.
type Syncer interface {
	// Sync must return nil only when all that was written to a workspace of a session
	// before is on the disk, and ErrFailed if it never will be; whether or not its sandbox
	// still lives, and this server has reached it. If newest is not empty it must also note
	// what the workspace is like, so that Recover can tell it from what was written later;
	// newest is the last snapshot that was taken, whose mark must stay.
	Sync(ctx context.Context, id dormouse.SessionID, workspace uint64, newest dormouse.SnapshotID) error
}

// Recoverer is implemented by drivers whose files may have lost writes.
type Recoverer interface {
	// Recover must see to it that the workspace of a session that has no sandbox is at
	// least its newest snapshot, if its files are not sound: what was lost or rolled back
	// must come back from it, and what a user has changed and is known to have been synced
	// must stay. The files of a hibernated sandbox that keeps its memory were all synced;
	// where anything else is put back no memory may wake over the files. Where it is
	// unknown what was synced, the snapshot's version must come back and the one found must
	// be kept beside it, or outside if there is no room. Where the newest snapshot is lost,
	// the files that are there must stay as they are; where none are, those of the older
	// snapshots must come back; and Lost must say so. It returns nil if the files are
	// sound, and otherwise what it did, again and again until ForgetRecovered is called
	// with that. Create and a Snapshot without a sandbox must be refused with ErrUnsound
	// before.
	Recover(ctx context.Context, r Recovery) (*Recovered, error)
	// ForgetRecovered says that what Recover returned is recorded.
	ForgetRecovered(r Recovered) error
}

// Recovery says what to recover, and from what.
type Recovery struct {
	Fence     runner.Fence
	Workspace Workspace
	// Snapshot is the newest one, empty if there is none.
	Snapshot dormouse.SnapshotID
	// Newest returns the directories that make up the newest snapshot, the lowest first,
	// until done is called; none if there is no snapshot. It is asked for only if
	// something has to be recovered. ErrSnapshotLost says that it will never return them;
	// after any other error it may do so later.
	Newest func(ctx context.Context) (layers []string, done func(), err error)
	// Older returns what can still be read of the snapshots before it in the same way; none
	// if it is nil.
	Older func(ctx context.Context) (layers []string, done func(), err error)
}

// Recovered is what became of files that were not sound.
type Recovered struct {
	// ID names it, and is another one each time.
	ID        string
	Session   dormouse.SessionID
	Condition Condition
	// Reason says why the files were not sound.
	Reason string
	// Since is when they were last known to be synced: what was written later may be
	// missing. It is zero if that is not known.
	Since time.Time
	// Files are the files that were restored, Count how many there are. At most MaxListed are listed.
	Files []layer.Restored
	Count int
	// Aside is where the host keeps a volume that could not be read any more, or had no
	// space for the files of the snapshot; empty if the session still has its volume.
	Aside string
	// Outside is the directory in which the host keeps files found in a volume that had no
	// space for them beside those of the snapshot; empty if there are none.
	Outside string `json:",omitempty"`
	// Lost says why the files were not compared with the newest snapshot, empty if they
	// were.
	Lost string `json:",omitempty"`
	// Fresh says that this recovery, which is not finished, created the session's volume: it
	// has nothing but what was restored so far.
	Fresh bool `json:",omitempty"`
}
