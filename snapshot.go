package dormouse

import (
	"fmt"
	"time"
)

// Layer is one layer of a chain: the changes to apply on top of the layers below it.
type Layer struct {
	// Digest names the blob that holds it, packed.
	Digest Digest `json:"digest"`
	// DiffID is the digest of the tar that is packed in the blob.
	DiffID Digest `json:"diff_id"`
	// Size is how large the blob is.
	Size int64 `json:"size"`
	// Bytes and Entries are of the files in it.
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	// Paths is how many bytes their paths are together, zero if they were not counted.
	Paths int64 `json:"paths,omitempty"`
}

// Snapshot is a snapshot of the workspace, and the payload of snapshot.taken. It holds
// all that is needed to restore the files.
type Snapshot struct {
	ID SnapshotID `json:"snapshot"`
	// Parent is the snapshot that it was taken after.
	Parent SnapshotID `json:"parent,omitempty"`
	Label  string     `json:"label,omitempty"`
	// Reason is why it was taken.
	Reason string `json:"reason"`
	// At is the seq of the log at which the files were as they are in it.
	At uint64 `json:"at"`
	// Midway says that a turn was at work, so that no conversation goes with it.
	Midway bool `json:"midway,omitempty"`
	// Aside says that the session never had these files: the snapshot was imported. The
	// workspace does not descend from it, and no conversation goes with it.
	Aside      bool   `json:"aside,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Workspace  uint64 `json:"workspace"`
	// Layers are the files, the lowest first. All are verified.
	Layers []Layer `json:"layers"`
	// Left are some paths of what no layer carries, LeftOut how many there are.
	Left    []string `json:"left,omitempty"`
	LeftOut int      `json:"left_out,omitempty"`
	// Live says that something was there which may change files without an event: a
	// process, a terminal, a connection.
	Live bool `json:"live,omitempty"`
}

// Why snapshots are taken.
const (
	SnapshotOfTurn  = "turn"  // a turn has ended
	SnapshotOfCall  = "call"  // a tool call has ended
	SnapshotAsked   = "asked" // a client or an agent asked for it
	SnapshotSealing = "seal"  // the sandbox has stopped
	// SnapshotBefore is taken before a turn begins, if files may have changed since the
	// last one.
	SnapshotBefore = "before"
	// SnapshotOfBranch is what a branch began with.
	SnapshotOfBranch = "branch"
	// SnapshotImported is what was brought in as an image.
	SnapshotImported = "import"
)

// SnapshotPolicy says when snapshots are taken of a workspace.
type SnapshotPolicy string

// The policies.
const (
	SnapshotsOff    SnapshotPolicy = "off"  // none by themselves
	SnapshotsByTurn SnapshotPolicy = "turn" // when a turn has ended that used the sandbox
	SnapshotsByCall SnapshotPolicy = "call" // also when a tool call has, before the next one begins
)

// Validate refuses what is no policy. None is one: others decide.
func (p SnapshotPolicy) Validate() error {
	switch p {
	case "", SnapshotsOff, SnapshotsByTurn, SnapshotsByCall:
		return nil
	}
	return fmt.Errorf("snapshots is %q; it must be turn, call or off: %w", truncate(string(p), 40), ErrInvalid)
}

// Limits of snapshots.
const (
	// MaxLabel bounds what a snapshot is called.
	MaxLabel = 200
	// MaxSnapshotsAsked bounds the snapshots that a session was asked for and has not
	// taken yet.
	MaxSnapshotsAsked = 16
	// MaxSnapshots is how many snapshots a session has at most, whatever retention says.
	MaxSnapshots = 1000
)

// SnapshotAsk is the payload of snapshot.asked.
type SnapshotAsk struct {
	ID    SnapshotID `json:"snapshot"`
	Label string     `json:"label,omitempty"`
}

// Validate refuses what could not be asked for.
func (a SnapshotAsk) Validate() error {
	if err := a.ID.Validate(); err != nil {
		return err
	}
	if err := ValidateText(a.Label); err != nil {
		return fmt.Errorf("label: %w", err)
	}
	if len(a.Label) > MaxLabel {
		return fmt.Errorf("label of %d bytes; at most %d are allowed: %w", len(a.Label), MaxLabel, ErrInvalid)
	}
	return nil
}

// SnapshotSkip is the payload of snapshot.skipped: no snapshot was taken.
type SnapshotSkip struct {
	ID     SnapshotID `json:"snapshot"`
	Reason string     `json:"reason"`
	// Error says why, if it was to be made.
	Error string `json:"error,omitempty"`
	// Full is set if it was for want of room on the disk.
	Full bool `json:"full,omitempty"`
	// At is set if nothing had changed: the seq of the log at which the files were still
	// those of the last snapshot. Live is as in Snapshot.
	At   uint64 `json:"at,omitempty"`
	Live bool   `json:"live,omitempty"`
}

// SnapshotsGone is the payload of snapshot.deleted.
type SnapshotsGone struct {
	IDs    []SnapshotID `json:"snapshots"`
	Reason string       `json:"reason,omitempty"`
}

// WorkspaceSwap is the payload of workspace.swapped: from now on the session has other
// files, or the same files over other layers.
type WorkspaceSwap struct {
	Number   uint64     `json:"workspace"`
	Snapshot SnapshotID `json:"snapshot"`
	Layers   []Layer    `json:"layers"`
	// Reason is why: restored, branched, sealed or imported.
	Reason string `json:"reason"`
	// Origin is the session whose snapshot it is, if that is another.
	Origin SessionID `json:"origin,omitempty"`
	// Processes says that what ran over these files there may run on here.
	Processes bool `json:"processes,omitempty"`
	// Replaced is the snapshot of the files that the session had before: restoring it
	// brings them back. Empty if there were none, or they were to be discarded.
	Replaced SnapshotID `json:"replaced,omitempty"`
}

// WorkspaceTouch is the payload of workspace.touched: a visitor enters the sandbox in a way
// that may change files, by a terminal, a port or a tree of files.
type WorkspaceTouch struct {
	Generation uint64 `json:"generation"`
	By         string `json:"by"`
}

// Why workspaces are swapped.
const (
	SwapRestored = "restored"
	SwapBranched = "branched"
	SwapSealed   = "sealed"
	SwapImported = "imported" // the session began so
)

// Truncation is the payload of history.truncated: what was said after To, up to this
// event, is not part of the conversation any more. It still happened.
type Truncation struct {
	To uint64 `json:"to"`
	// Replaced is the snapshot of the files that were replaced. It was taken after To and
	// is not deleted.
	Replaced SnapshotID `json:"kept,omitempty"`
}

// Retention is how long snapshots are kept. Zero is no limit.
type Retention struct {
	MaxAge   time.Duration `json:"max_age,omitempty"`
	MaxCount int           `json:"max_count,omitempty"`
}

// WorkspaceRecovery is the payload of workspace.recovered: files of the session were not
// what had been written to them, because the machine ended or its disk failed, and what
// its newest snapshot has of them was put back.
type WorkspaceRecovery struct {
	ID        string `json:"recovery"`
	Workspace uint64 `json:"workspace"`
	// Snapshot is where the files come from, empty if there is none.
	Snapshot SnapshotID `json:"snapshot,omitempty"`
	// Uncompared says why the newest snapshot could not be read, and never will be: the
	// files are those that were found, or, if none were, those of the snapshots before.
	Uncompared string `json:"uncompared,omitempty"`
	// Condition is cut or failed, and Reason says more.
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	// Since is when the files were last known to be on the disk: what was written later
	// may be missing or incomplete, whether or not it is listed.
	Since time.Time `json:"since,omitzero"`
	// Files are some of those that were put back, Count how many there are.
	Files []RecoveredFile `json:"files,omitempty"`
	Count int             `json:"count,omitempty"`
	// Aside is where this server keeps a volume that could not be read any more, or had no
	// room for the files of the snapshot.
	Aside string `json:"aside,omitempty"`
	// Outside is where it keeps found files that the volume had no room for beside those
	// of the snapshot, under the paths that they had.
	Outside string `json:"outside,omitempty"`
}

// RecoveredFile is a file that was put back.
type RecoveredFile struct {
	Path string `json:"path"`
	// SavedAs is the path of the file that was found there instead, empty if there was none.
	SavedAs string `json:"kept,omitempty"`
	// Outside says that SavedAs is outside of the workspace.
	Outside bool `json:"outside,omitempty"`
}
