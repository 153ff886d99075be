// Package store is the port of a database for sessions: one ordered log per session, fenced
// by an epoch, with rows derived from it that are written in the same transaction and can
// be rebuilt from it at any time. Beside them it keeps the documents that sessions are made
// of.
package store

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Epoch fences writers: an append that carries an older epoch is refused by the
// database itself.
type Epoch = uint64

// Log is the history of every session.
//
// What Append returned nil for must survive a kill and a power cut. An append
// must be all or nothing. A refused append must fail alone, even when it shares
// a commit with others. An append that fails with dormouse.ErrUnknownOutcome
// may have happened; every other error means that nothing changed.
type Log interface {
	// Create stores the first events of a session, with epoch 0 and no owner, so that
	// nothing can be appended before a claim. A session that exists must be refused with
	// dormouse.ErrConflict. If b.Under names a parent, a parent whose epoch is another by
	// now must be refused with ErrStaleSender, in the same transaction: a server that lost
	// the parent makes no more children.
	Create(ctx context.Context, b Batch) error

	// Claim takes the right to write a session and must return a higher epoch
	// than any claim before it, and than above; from then on a stale epoch cannot append. A
	// database that was put back has forgotten epochs that a sandbox remembers. An
	// unknown session is dormouse.ErrNotFound. In a shared store a session that
	// another live server owns must be refused with *ElsewhereError, and a server
	// whose own lease has run out with dormouse.ErrLeaseLost. A session whose log needs
	// a newer program, and that no other live server owns, must be refused with
	// *dormouse.NewerLogError; its epoch and its owner must stay as they are.
	Claim(ctx context.Context, id dormouse.SessionID, above Epoch) (Epoch, error)

	// Append adds a batch after b.After. It must refuse a stale epoch with
	// dormouse.ErrLeaseLost, a wrong After or an id that a client gave before with
	// dormouse.ErrConflict, a full disk with dormouse.ErrFull, and an unknown session with
	// dormouse.ErrNotFound. If b.Under names the session that asked for it, and its epoch
	// is another by now, it must be refused with ErrStaleSender, in the same transaction:
	// what a server does for a session that it has lost comes too late. A caller that stops
	// waiting must never be told that nothing changed when something may have.
	Append(ctx context.Context, b Batch) error

	// Read must return events with a seq above after, in order, at most limit,
	// and only committed ones. A row that is not as it was written, or is missing, must
	// be *DamageError, which is returned together with the events before it.
	Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error)

	// Mark must set what Index.Damage says of a session, fenced by the epoch as an
	// append is. An append must leave it as it is.
	Mark(ctx context.Context, id dormouse.SessionID, epoch Epoch, damage string) error
}

// Batch is one transaction on one session. Times must come back as they were
// given, in UTC; a caller gives whole microseconds.
type Batch struct {
	Session dormouse.SessionID
	Epoch   Epoch
	// Under fences a batch by the epoch of the session that asked for it: of a child's
	// first events, and of what its parent sends it.
	Under *dormouse.Fence
	// After is the seq the writer believes is the last.
	After  uint64
	Events []dormouse.Event
	// Rows are the projections of Events; nil for a batch of chunks only.
	Rows *dormouse.Rows
	// Chunks are pieces of running model calls. The chunks of an op must be gone
	// once a row says the op is no longer open.
	Chunks []Chunk
	// State, if not nil, replaces the cached fold of the log, which is the fold
	// up to and including the last of Events.
	State *dormouse.StateCache
}

// ErrStaleSender means that a session was asked for something by a server that has lost
// the session it asked for. Nothing changed.
var ErrStaleSender = fmt.Errorf("the server that asked has lost the session it asked for: %w", dormouse.ErrLeaseLost)

// Chunk is a durable piece of a running model call. N orders the pieces of an
// op; a chunk must replace the one its op already has at N.
type Chunk struct {
	Op   dormouse.OpID
	N    int
	Text string
}

// Reader answers questions from the rows. An index row that is not what was written must
// be no error, for its session or for others: what of it cannot be read is empty, and
// CorruptColumns and Damage say so. A Rebuild must write it anew, and so must the next append after
// a Claim and a Mark if the database lets one in.
type Reader interface {
	// Session must return the index row, or dormouse.ErrNotFound.
	Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error)
	// Sessions must list newest first, or oldest first if q.Oldest says so, at most
	// q.Limit, from q.After on. A q.After that the tenant does not have must be
	// dormouse.ErrNotFound.
	Sessions(ctx context.Context, q Query) ([]dormouse.SessionRow, error)
	// Prompts must list a session's prompts with the given statuses, or with any
	// if none is given, oldest first.
	Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error)
	// Prompt must return one prompt, or dormouse.ErrNotFound.
	Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error)
	// ClientIDs must return the seq of each of the ids that a client has given in the
	// session. What other sessions have must not matter.
	ClientIDs(ctx context.Context, id dormouse.SessionID, ids ...string) (map[string]uint64, error)
	// Ops must list a session's ops, the last recorded first, at most limit.
	Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error)
}

// Loader is what an actor needs to begin.
type Loader interface {
	// State must return the newest cached fold, or a zero State if there is none.
	State(ctx context.Context, id dormouse.SessionID) (dormouse.StateCache, error)
	// Chunks must return an open op's chunks in order.
	Chunks(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) ([]Chunk, error)
	// Due must list sessions due at or before t, most overdue first, at most limit. Like
	// NextDue it must leave out sessions whose log needs a newer program.
	Due(ctx context.Context, t time.Time, limit int) ([]dormouse.SessionID, error)
	// NextDue must return the earliest due time after t, or the zero time.
	NextDue(ctx context.Context, t time.Time) (time.Time, error)
}

// Rebuilder replaces what was derived, from the log alone.
type Rebuilder interface {
	// Rebuild must replace every derived row of a session with rows, keeping
	// events, epoch and chunks of open ops, in one transaction. The cached state
	// must be gone afterwards. Rows that do not reach the last event must be
	// refused with dormouse.ErrConflict. So must those of a log that ends before the
	// index row says: what it has lost must not be written over. An index row that says
	// less than the log has must be mended.
	Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error
	// All must list every session, oldest first, from after on, at most limit.
	All(ctx context.Context, after dormouse.SessionID, limit int) ([]dormouse.SessionID, error)
}

// Importer takes sessions in from another store, and out to it.
type Importer interface {
	// Epoch must return the newest epoch of a session, or dormouse.ErrNotFound.
	Epoch(ctx context.Context, id dormouse.SessionID) (Epoch, error)
	// Import stores the first events of a session that has lived elsewhere: as
	// Create, but under b.Epoch, so that the rest can be appended under it and
	// the next claim is higher than any a sandbox has seen.
	Import(ctx context.Context, b Batch) error
}

// Remover forgets.
type Remover interface {
	// Delete must make a session be gone for every reader at once, fenced as an
	// append is; what remains of it on the disk may follow. A session that is not
	// there must succeed.
	Delete(ctx context.Context, id dormouse.SessionID, epoch Epoch) error
	// Named must return those of the digests that an event or a snapshot of any
	// session names.
	Named(ctx context.Context, digests []dormouse.Digest) ([]dormouse.Digest, error)
}

// Store is everything a server needs of its database.
type Store interface {
	Log
	Reader
	Loader
	Rebuilder
	Importer
	Remover
	Documents
	// Check reports whether the database can be read and written now.
	Check(ctx context.Context) error
	Close() error
}
