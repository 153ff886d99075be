//go:build !faults

package e2e

import "time"

// The short tier runs with everything else, the long one in "make faults". Both
// run the same cases; the long one gives the faults more room.
const (
	cuts   = 12              // how often the power fails
	stalls = 3 * time.Second // how long a disk stands still

	// patience is for what must happen on a machine that has other things to do.
	patience = 90 * time.Second
)
