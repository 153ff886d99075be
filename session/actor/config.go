package actor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store"
)

// Config is what the actors of a server work with.
type Config struct {
	Store  store.Store
	Blobs  blob.Store
	Driver sandbox.Driver
	Agent  Agent
	Logger *slog.Logger
	Clock  func() time.Time
	// Feeds is where followers get what is committed.
	Feeds *feed.Feeds
	// DropAfter is how long an actor that has nothing to do stays loaded.
	DropAfter time.Duration
	// IdleTimeout is how long a sandbox may be idle, whatever its session says; 0 is as
	// long as that says.
	IdleTimeout time.Duration
	// Snapshots stores the snapshots of workspaces; nil if none are taken. SnapshotPolicy
	// says when they are taken if an environment does not, and Retention how long they
	// are kept.
	Snapshots      *snapshot.Store
	SnapshotPolicy dormouse.SnapshotPolicy
	Retention      dormouse.Retention
	// Refs is what refs of snapshots are authenticated with, and CrossSession says that
	// agents may use those of other sessions, when they say that they mean to.
	Refs         snapshot.Key
	CrossSession bool
	// ReleaseReserve frees part of the reserved disk space, and reports whether there was
	// any left. It may be nil.
	ReleaseReserve func() bool
	// Committed is called with what was just committed, in order per session, before
	// followers get it.
	Committed func(id dormouse.SessionID, events []dormouse.Event)
	// Fence returns once no server works on a session without a lease. It may be nil.
	Fence func(context.Context) error

	Sessions   Sessions
	Workspaces Workspaces
	Slots      Slots
}

// Agent runs one attempt of a turn.
type Agent interface {
	Run(ctx context.Context, j agent.Journal) error
}

// Lease is the right to write sessions, under which an actor lives.
type Lease interface {
	// Holds returns dormouse.ErrLeaseLost once it cannot be relied on any more.
	Holds() error
	// Writes is the context of durable writes, which ends when it is lost.
	Writes() context.Context
	// CountStale counts a write that was refused because a newer owner has written.
	CountStale()
}

// Sessions is what an actor needs of other sessions, wherever they are: its parent,
// its children, and those whose snapshots its agent may use.
type Sessions interface {
	Do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
	CreateChild(ctx context.Context, by dormouse.Actor, c dormouse.Created, parent *dormouse.Fence) (dormouse.SessionRow, error)
	Peek(ctx context.Context, id dormouse.SessionID) (law.State, error)
	Row(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error)
	Remains(ctx context.Context, id dormouse.SessionID, damage error) (law.State, dormouse.SessionRow, error)
	Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error)
	Events(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error)
	Follow(ctx context.Context, id dormouse.SessionID, after uint64) (*feed.Follower, error)
}

// Workspaces is what an actor needs to take snapshots for its agent and to swap its
// workspace for one.
type Workspaces interface {
	Snapshot(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.SnapshotAsk) (dormouse.Snapshot, error)
	ReadManifest(ctx context.Context, id dormouse.SessionID, p law.Snapshot) (dormouse.Snapshot, error)
	// KeepReplaced makes sure that the present files of a session are in a snapshot.
	KeepReplaced(ctx context.Context, state law.State, by dormouse.Actor) (dormouse.SnapshotID, law.State, error)
	// PrepareSwap fetches the files of a snapshot for the next workspace of a session, and
	// ReleaseSwap gives them back if the session did not go on with them.
	PrepareSwap(ctx context.Context, s law.State, m dormouse.Snapshot, reason string, origin dormouse.SessionID) (dormouse.WorkspaceSwap, error)
	ReleaseSwap(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap)
}

// Slots bounds how many sandboxes are awake at once.
type Slots interface {
	// TryAcquire takes a slot if there is one, and Acquire waits for one. A session that
	// has one keeps it.
	TryAcquire(id dormouse.SessionID) bool
	Acquire(ctx context.Context, id dormouse.SessionID) error
	// SetIdle says since when a sandbox is idle, zero if it is not, and SetStopping that
	// it is being stopped.
	SetIdle(id dormouse.SessionID, since time.Time)
	SetStopping(id dormouse.SessionID)
	Release(id dormouse.SessionID)
}

// reader reads the logs of the sessions.
func (c *Config) reader() history.Reader {
	return history.Reader{Store: c.Store, Blobs: c.Blobs, Logger: c.Logger}
}

// withReserve is WithReserve with the configured reserve.
func (c *Config) withReserve(do func() error) error { return WithReserve(c.ReleaseReserve, do) }

// WithReserve does something that frees disk space, but has to write first. If the disk is
// full it releases part of the reserve and tries again: a write that was refused for lack of
// space has changed nothing.
func WithReserve(releaseReserve func() bool, do func() error) error {
	err := do()
	for errors.Is(err, dormouse.ErrFull) && releaseReserve != nil && releaseReserve() {
		err = do()
	}
	return err
}
