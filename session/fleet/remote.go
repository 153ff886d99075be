package fleet

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse/session/visit"
)

// remote is a sandbox that another server holds.
type remote struct {
	fleet *Fleet
	owner Server
	to    visit.Errand // the sandbox that is meant
}

// Visit visits a sandbox that another server holds. Whatever is done on the visit is an
// errand for that server, about the sandbox that was found first.
func (f *Fleet) Visit(ctx context.Context, visits *visit.Register, owner Server, e visit.Errand) (*visit.Visit, error) {
	found, err := remote{fleet: f, owner: owner, to: e}.Run(ctx, visit.Errand{})
	if err != nil {
		return nil, err
	}
	e.Wake, e.Generation = false, found.Generation
	return visits.NewRemote(remote{fleet: f, owner: owner, to: e}, found.Generation)
}

// Run has the other server run an errand.
func (r remote) Run(ctx context.Context, e visit.Errand) (found visit.Findings, err error) {
	e.Session, e.Wake, e.Generation = r.to.Session, r.to.Wake, r.to.Generation
	err = r.fleet.ask(ctx, r.owner, e.Session, func(ctx context.Context, route Route) error {
		found, err = r.fleet.config.Peers.Ask(ctx, route, e)
		return err
	})
	return found, unreached(err)
}

// Open has the other server open a stream.
func (r remote) Open(ctx context.Context, s visit.Stream) (c visit.Conn, err error) {
	e := r.to
	e.Stream = &s
	err = r.fleet.ask(ctx, r.owner, e.Session, func(ctx context.Context, route Route) error {
		c, err = r.fleet.config.Peers.Open(ctx, route, e)
		return err
	})
	return c, unreached(err)
}

// unreached tells a visitor that the sandbox is out of reach if its server is.
func unreached(err error) error {
	if errors.Is(err, ErrUnreached) {
		return visit.OutOfReach(err)
	}
	return err
}
