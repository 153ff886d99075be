// Package crash names the instants at which a process may be killed, so that a
// test can kill it exactly there. In an ordinary build At does nothing and
// costs nothing; built with the tag "crash", a process kills itself on reaching the point
// that DORMOUSE_CRASH_AT names, and its clock can be set.
package crash

// Point is one instant between two durable steps.
type Point string

// Death is how a process ends at a point.
type Death string

// The deaths.
const (
	Kill   Death = ""       // SIGKILL
	Exit   Death = "exit"   // os.Exit
	Panic  Death = "panic"  // in the goroutine that got there; some are survived
	Freeze Death = "freeze" // SIGSTOP: it wakes later and goes on as if nothing had happened
)

// The points, by the step they lie in.
const (
	// Prompt intake.
	PromptParsed    Point = "prompt.parsed"    // the door has read the request
	PromptDeciding  Point = "prompt.deciding"  // before the append
	PromptWriting   Point = "prompt.writing"   // after the append, before the commit
	PromptCommitted Point = "prompt.committed" // after the commit, before the answer
	PromptAnswered  Point = "prompt.answered"  // after the answer, before anything is woken

	// Lease and load.
	LeaseClaiming Point = "lease.claiming" // before the epoch is raised
	LeaseClaimed  Point = "lease.claimed"  // after, before the state is loaded
	LeaseReplay   Point = "lease.replay"   // while the log is replayed
	LeaseRelease  Point = "lease.release"  // an idle actor is about to be dropped

	// Several servers.
	LeaseJoined    Point = "lease.joined"    // a server has a lease, nothing is loaded
	LeaseRenewing  Point = "lease.renewing"  // before a server's lease is renewed
	LeaseLost      Point = "lease.lost"      // a lease is over, the actors under it still run
	LeaseTaking    Point = "lease.taking"    // due sessions were taken, none is loaded
	LeaseReleasing Point = "lease.releasing" // an actor has left, its session is still owned
	LeaseLeaving   Point = "lease.leaving"   // all actors have left, the lease still holds
	PeerAsking     Point = "peer.asking"     // before another server is asked
	PeerAsked      Point = "peer.asked"      // it has answered, before the client is
	StoreFencing   Point = "store.fencing"   // a group of appends is about to be compared with the epochs
	FenceBanned    Point = "fence.banned"    // a server that holds on may not join again, and still lives

	// Turns.
	TurnStarting Point = "turn.starting" // before the turn is written
	TurnWritten  Point = "turn.written"  // turn and prompt are durable
	TurnFirstOp  Point = "turn.first_op" // before the first op
	TurnBetween  Point = "turn.between"  // between two ops
	TurnEnding   Point = "turn.ending"   // last op done, before the end is written
	TurnEnded    Point = "turn.ended"    // the end is durable, followers were not told
	TurnNext     Point = "turn.next"     // before the next prompt is taken
	TurnBlocking Point = "turn.blocking" // before a turn that waits for people is written as such

	// The op journal.
	OpStarting  Point = "op.starting"  // before op.started
	OpStarted   Point = "op.started"   // op.started is durable, nothing was sent
	OpSent      Point = "op.sent"      // the call is out, no byte came back
	OpFirstByte Point = "op.first"     // the first fragment is here, not stored
	OpChunk     Point = "op.chunk"     // a fragment is stored
	OpResult    Point = "op.result"    // the whole result is in memory
	OpFinished  Point = "op.finished"  // op.finished is durable, followers were not told
	OpForgotten Point = "op.forgotten" // the runner was told to forget
	OpAnswered  Point = "op.answered"  // a person's answer is durable, before its reply
	OpKilling   Point = "op.killing"   // before an interrupted op is killed

	// Interrupts.
	InterruptDeciding  Point = "interrupt.deciding"
	InterruptCommitted Point = "interrupt.committed"

	// Recovery.
	RecoverDeciding  Point = "recover.deciding"  // before the attempt is counted
	RecoverCommitted Point = "recover.committed" // counted, before the journal is read
	RecoverUnknown   Point = "recover.unknown"   // an op was written as unknown
	RecoverAttach    Point = "recover.attach"    // before re-attaching to a running command
	RecoverFailing   Point = "recover.failing"   // out of attempts, before it is written
	RecoverFailed    Point = "recover.failed"    // written, before the next prompt is taken

	// Sandboxes.
	SandboxIntent   Point = "sandbox.intent"   // before the intent to warm is written
	SandboxCreating Point = "sandbox.creating" // intent durable, nothing created
	SandboxCreated  Point = "sandbox.created"  // created, its handle not stored
	SandboxReady    Point = "sandbox.ready"    // handle stored
	SandboxStopping Point = "sandbox.stopping" // before a sandbox is stopped
	SandboxPaused   Point = "sandbox.paused"   // nothing runs in it, its memory is not written
	SandboxFrozen   Point = "sandbox.frozen"   // its memory is saved, it is still there
	SandboxWaking   Point = "sandbox.waking"   // its memory is taken, nothing runs
	SandboxWoken    Point = "sandbox.woken"    // it runs again, the caller was not told
	SandboxStopped  Point = "sandbox.stopped"  // stopped, not yet written
	SandboxClearing Point = "sandbox.clearing" // ended, and locked against others while it is cleaned up
	SandboxLocked   Point = "sandbox.locked"   // locked against others, its last holder is not checked

	// Snapshots.
	SnapshotCapturing  Point = "snapshot.capturing"  // wanted, nothing is copied
	SnapshotCaptured   Point = "snapshot.captured"   // what changed is staged
	SnapshotRecording  Point = "snapshot.recording"  // its layers are stored, it is not recorded
	SnapshotRecorded   Point = "snapshot.recorded"   // written, the caller was not told
	SnapshotForgetting Point = "snapshot.forgetting" // before its deletion is written
	SnapshotForgotten  Point = "snapshot.forgotten"  // written, its layers are all there
	BranchPrepared     Point = "branch.prepared"     // its layers are there and noted, the session is not
	BranchWritten      Point = "branch.written"      // the session is there, the caller was not told
	SwapDeciding       Point = "swap.deciding"       // its layers are there, the swap is not written
	SwapCommitted      Point = "swap.committed"      // written, the sandbox has the files of before
	TouchDeciding      Point = "touch.deciding"      // a visitor asks for access that may change files; that is not written yet
	TouchCommitted     Point = "touch.committed"     // written, access is not granted

	// Images that are imported.
	ImageRead  Point = "image.read"  // all of it is staged, nothing is stored
	ImageKept  Point = "image.kept"  // its layers are stored, no row names them
	ImageNamed Point = "image.named" // a snapshot names them, the caller was not told

	// Branches that start with the processes of their parent.
	BranchCopied    Point = "branch.copied"    // what ran is copied, the session is not there
	BranchInherited Point = "branch.inherited" // a part of it is the session's, no sandbox has it

	// Snapshots of running sandboxes, and workspaces made from them.
	CapturePausing   Point = "capture.pausing"   // noted, nothing in the sandbox is paused yet
	CapturePaused    Point = "capture.paused"    // nothing runs, what is missing is not copied
	CaptureCopied    Point = "capture.copied"    // all is copied, nothing runs
	CaptureResumed   Point = "capture.resumed"   // it runs again, which is not noted, nor is the snapshot
	CaptureNoted     Point = "capture.noted"     // the snapshot is noted, the caller was not told
	WorkspaceMade    Point = "workspace.made"    // a workspace is there over its layers, no sandbox has it
	WorkspaceStarted Point = "workspace.started" // a sandbox has it, those before it are still there

	// Files after a power cut or on a failed disk.
	RecoverPlanned Point = "files.planned" // what is to be restored is noted, nothing is restored
	RecoverApplied Point = "files.applied" // it is restored, and not synced
	RecoverTold    Point = "files.told"    // the recovery is recorded, its note is still there
	AsideNoted     Point = "aside.noted"   // it is noted that a volume which cannot be read is to be set aside
	AsideMade      Point = "aside.made"    // its replacement is there, under another name
	AsideNamed     Point = "aside.named"   // the old one has both names
	AsideReplaced  Point = "aside.done"    // the new one is in its place, with nothing in it

	// Wake-ups, children, deletion.
	WakeupFiring   Point = "wakeup.firing"   // due, before its prompt is queued
	WakeupFired    Point = "wakeup.fired"    // its prompt is durable
	ChildCreating  Point = "child.creating"  // recorded, not made
	ChildCreated   Point = "child.created"   // made, its first prompt not sent
	ChildPrompted  Point = "child.prompted"  // made and prompted, not recorded
	ChildEnding    Point = "child.ending"    // before a child is terminated
	ChildEnded     Point = "child.ended"     // terminated, not recorded
	ParentTelling  Point = "parent.telling"  // a child has ended, its parent does not know
	ParentTold     Point = "parent.told"     // the parent knows, which the child has not recorded
	DeleteClearing Point = "delete.clearing" // before the workspace is removed
	DeleteCleared  Point = "delete.cleared"  // workspace removed, the log is there
	DeleteDone     Point = "delete.done"     // nothing is left

	// Blobs: of a file, and in a bucket.
	BlobWriting Point = "blob.writing" // temporary file written, not synced; nothing sent
	BlobSynced  Point = "blob.synced"  // synced, not renamed; sent, perhaps about to be collected
	BlobRenamed Point = "blob.renamed" // renamed, directory not synced; not proven to be there
	BlobWritten Point = "blob.written" // durable, no row names it

	// Layers.
	LayerPacking Point = "layer.packing" // what changed is staged, nothing is stored
	LayerPut     Point = "layer.put"     // its blob is durable, its directory has no name
	LayerKept    Point = "layer.kept"    // both are there, no row names them

	CompactMerged Point = "compact.merged" // layers are merged and stored, which is not noted
	CompactNoted  Point = "compact.noted"  // noted, no chain uses it

	// Collections.
	CollectFound   Point = "collect.found"   // an unreferenced blob was found, and is not deleted
	CollectRemoved Point = "collect.removed" // it is deleted, others are not
	SweepReleased  Point = "sweep.released"  // what a deleted session used is released
	SweepDiscarded Point = "sweep.discarded" // directories are removed, their names are not

	// The database.
	StoreFlushing  Point = "store.flushing"  // a group of appends is about to commit
	StoreFlushed   Point = "store.flushed"   // committed, no writer was answered
	MigrateBegun   Point = "migrate.begun"   // a step runs, nothing is committed
	MigrateStepped Point = "migrate.stepped" // a step is committed, the next is not begun
	StateCaching   Point = "state.caching"   // before the cached fold is written

	// The runner, in its own process.
	RunnerAccepted Point = "runner.accepted" // an op is recorded, nothing was started
	RunnerStarted  Point = "runner.started"  // its process runs, the server was not told
	RunnerFinished Point = "runner.finished" // its result is stored, the server was not told
)

// Keeping lists the points that only a server reaches which stores layers.
func Keeping() []Point {
	return []Point{LayerPacking, LayerPut, LayerKept, CompactMerged, CompactNoted}
}

// Collecting lists the points of collecting blobs that nothing references.
func Collecting() []Point {
	return []Point{CollectFound, CollectRemoved, SweepReleased, SweepDiscarded}
}

// Shared lists the points that only a server of a shared store reaches.
func Shared() []Point {
	return []Point{
		LeaseJoined, LeaseRenewing, LeaseLost, LeaseTaking, LeaseReleasing, LeaseLeaving, PeerAsking, PeerAsked,
		StoreFencing, FenceBanned,
	}
}

// Freezing lists the points that only a driver reaches which hibernates processes.
func Freezing() []Point {
	return []Point{SandboxPaused, SandboxFrozen, SandboxWaking, SandboxWoken, SandboxClearing}
}

// Branching lists the points that only a driver reaches which can copy processes into a
// branch.
func Branching() []Point { return []Point{BranchCopied, BranchInherited} }

// Capturing lists the points that only a driver reaches which pauses a sandbox for a
// snapshot.
func Capturing() []Point {
	return []Point{CapturePausing, CapturePaused, CaptureCopied, CaptureResumed}
}

// Restoring lists the points that only a server reaches whose sessions go back to
// snapshots.
func Restoring() []Point {
	return []Point{
		SnapshotCapturing, SnapshotCaptured, SnapshotRecording, SnapshotRecorded, SwapDeciding, SwapCommitted, TouchDeciding, TouchCommitted,
		SnapshotForgetting, SnapshotForgotten, BranchPrepared, BranchWritten,
		CaptureNoted, WorkspaceMade, WorkspaceStarted, ImageRead, ImageKept, ImageNamed,
	}
}

// Recovering lists the points that only a server reaches which recovers files.
func Recovering() []Point { return []Point{RecoverPlanned, RecoverApplied, RecoverTold} }

// Points lists every point that any server reaches.
func Points() []Point {
	return []Point{
		PromptParsed, PromptDeciding, PromptWriting, PromptCommitted, PromptAnswered,
		LeaseClaiming, LeaseClaimed, LeaseReplay, LeaseRelease,
		TurnStarting, TurnWritten, TurnFirstOp, TurnBetween, TurnEnding, TurnEnded, TurnNext, TurnBlocking,
		OpStarting, OpStarted, OpSent, OpFirstByte, OpChunk, OpResult, OpFinished, OpForgotten, OpAnswered, OpKilling,
		InterruptDeciding, InterruptCommitted,
		RecoverDeciding, RecoverCommitted, RecoverUnknown, RecoverAttach, RecoverFailing, RecoverFailed,
		SandboxIntent, SandboxCreating, SandboxCreated, SandboxReady, SandboxStopping, SandboxLocked, SandboxStopped,
		WakeupFiring, WakeupFired, ChildCreating, ChildCreated, ChildPrompted, ChildEnding, ChildEnded, ParentTelling, ParentTold,
		DeleteClearing, DeleteCleared, DeleteDone,
		BlobWriting, BlobSynced, BlobRenamed, BlobWritten,
		StoreFlushing, StoreFlushed, MigrateBegun, MigrateStepped, StateCaching,
		RunnerAccepted, RunnerStarted, RunnerFinished,
	}
}
