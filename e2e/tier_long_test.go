//go:build faults

package e2e

import "time"

const (
	grids   = 17 // many and short, because what is looked through after a cut grows
	cuts    = 12
	crashes = 50
	stalls  = 30 * time.Second
	reads   = 60 * time.Second
	backlog = 1 << 30

	random  = 3 * time.Minute
	insides = "local gvisor"

	patience = 10 * time.Minute
)
