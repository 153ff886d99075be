//go:build !faults

package e2e

import "time"

// The short tier runs with everything else, the long one in "make faults". Both
// run the same cases; the long one gives the faults more room.
const (
	grids   = 1               // on which the power fails
	cuts    = 12              // how often it does on each
	crashes = 3               // how often the database does
	stalls  = 3 * time.Second // how long a disk hangs
	reads   = 3 * time.Second // how long another process reads the database
	backlog = 64 << 20        // how large its log has become at boot

	// How long files are written to at random, and in which sandboxes.
	random  = 12 * time.Second
	insides = "local"

	// patience is for what must happen on a machine that has other things to do.
	patience = 4 * time.Minute
)
