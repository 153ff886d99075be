package snapshot

import "github.com/dormouse-run/dormouse"

type (
	// Difference is what differs between two snapshots.
	Difference = dormouse.Difference
	// Change is one name that is not what it was.
	Change = dormouse.Change
)

// The values of What.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)
