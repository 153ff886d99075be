package client

import (
	"context"

	"github.com/dormouse-run/dormouse"
)

// Ops lists the newest ops of a session. A limit of 0 stands for 50.
func (c *Client) Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error) {
	a, err := get[struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}](ctx, c, of(id, "ops"), query("limit", number(limit)))
	return a.Ops, err
}
