package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Shared is a store that several servers use at once. A store for one server
// alone does not have it.
//
// Every server holds a lease, and every session that is loaded has an owner among the
// servers. Whether a lease has run out is judged by the database's clock alone. A lease
// does not fence: the epoch does, which rises when a session changes hands. The claims
// of a store that has not joined have no owner, and must be refused by a live owner
// alone.
type Shared interface {
	Fleet
	Ownership
}

// Fleet is the servers that share a store. Its methods speak for the server
// that joined through this value.
type Fleet interface {
	// Join takes a lease for a server and must give it an incarnation that was never
	// given before. A server at another place than one that lives must be refused with
	// dormouse.ErrConflict: they could not reach each other's sandboxes. A server that
	// joins again must give up the life it had, with all that it owned; if that one was
	// banned, it must be refused with ErrBanned. A server that may not use the database
	// any more, since a newer one has changed its schema, must be refused with ErrNewer.
	Join(ctx context.Context, s Server, lease time.Duration) (Server, error)
	// Renew extends the lease. One that has run out must be dormouse.ErrLeaseLost:
	// others may own its sessions already, and only Join makes it a server again.
	Renew(ctx context.Context) error
	// Leave ends the lease; every session it owned must be free at once.
	Leave(ctx context.Context) error
	// Servers must list the servers that live.
	Servers(ctx context.Context) ([]Server, error)
	// Ban must keep a server whose lease has run out from ever joining again, and report
	// whether it has: a server that lives must be left alone. If it returns true, the
	// caller may end the process of that server.
	Ban(ctx context.Context, incarnation uint64) (bool, error)
	// Unban must forget that a server was banned, which has ended.
	Unban(ctx context.Context, incarnation uint64) error
	// Key must return the same secret to every server of the store: they know
	// each other by it.
	Key(ctx context.Context) ([]byte, error)
	// Now is the clock that all servers of the store share, from Join on. It must
	// not go back, whatever the clock of this machine does.
	Now() time.Time
}

// Ownership says which server a session is loaded on.
type Ownership interface {
	// Take makes this server the owner of sessions due at or before t that no
	// live server owns, most overdue first, at most limit, and must return no
	// session to two servers. Sessions whose log needs a newer program, and those in
	// except, must be left to others. Epochs stay: the claim that follows raises them. A
	// server whose own lease has run out must be refused with
	// dormouse.ErrLeaseLost.
	Take(ctx context.Context, t time.Time, limit int, except ...dormouse.SessionID) ([]dormouse.SessionID, error)
	// Release must give up a session that this server owns under epoch, and do
	// nothing if it does not.
	Release(ctx context.Context, id dormouse.SessionID, epoch Epoch) error
	// Where must say of each session that exists how far its log goes and which
	// live server owns it, if any.
	Where(ctx context.Context, ids ...dormouse.SessionID) ([]Location, error)
	// Listen calls changed with sessions to which a server has appended, soon after;
	// with none when it may have missed some. It may be late or call too often, so that
	// a caller that relies on it also looks by itself now and then. It returns the cause
	// when ctx ends.
	Listen(ctx context.Context, changed func(ids []dormouse.SessionID)) error
}

// ErrBanned means that another server is about to end this process: it held on to
// what it had after its lease had run out.
var ErrBanned = errors.New("this server held on after its lease, and is being ended by another")

// Server is one serving process of those that share a store.
type Server struct {
	// Incarnation is one life of a server: a restart is another one.
	Incarnation uint64 `json:"incarnation"`
	Name        string `json:"name"`
	// Addr is where other servers reach it.
	Addr string `json:"addr"`
	// Place names what its sandboxes can be reached from: servers of one place
	// reach each other's.
	Place string `json:"place"`
}

// Location is where a session is.
type Location struct {
	Session dormouse.SessionID
	Seq     uint64
	// Owner is nil if no live server owns the session.
	Owner *Server
}

// ElsewhereError says that another live server owns a session.
type ElsewhereError struct {
	Session dormouse.SessionID
	Owner   Server
}

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("session %s is on server %s", e.Session, e.Owner.Name)
}
