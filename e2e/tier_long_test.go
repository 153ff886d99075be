//go:build faults

package e2e

import "time"

const (
	grids   = 4
	cuts    = 50
	crashes = 50
	stalls  = 30 * time.Second
	reads   = 60 * time.Second
	backlog = 1 << 30

	patience = 10 * time.Minute
)
