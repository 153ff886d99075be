package door

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// Rows finds the row of a session.
type Rows interface {
	Row(ctx context.Context, id dormouse.SessionID) (session.Row, error)
}

// Tenants finds the tenant that a session belongs to.
type Tenants interface {
	Tenant(ctx context.Context, id dormouse.SessionID) (string, error)
}

// Row returns the row of a session of the caller's tenant. A session of another
// tenant is not found.
func (c *Call) Row(ctx context.Context, all Rows, id dormouse.SessionID) (session.Row, error) {
	row, err := all.Row(ctx, id)
	if err := c.owns(id, row.Tenant, err); err != nil {
		return session.Row{}, err
	}
	return row, nil
}

// Own checks that a session belongs to the caller's tenant. It reads less than Row.
func (c *Call) Own(ctx context.Context, all Tenants, id dormouse.SessionID) (dormouse.SessionID, error) {
	tenant, err := all.Tenant(ctx, id)
	return id, c.owns(id, tenant, err)
}

func (c *Call) owns(id dormouse.SessionID, tenant string, err error) error {
	if err == nil && tenant != c.Who.Tenant || errors.Is(err, dormouse.ErrNotFound) {
		err = dormouse.ErrNotFound // without where it was looked for
	}
	if err != nil {
		return fmt.Errorf("session %q: %w", Shorten(strings.ToValidUTF8(string(id), "\uFFFD")), err)
	}
	return nil
}
