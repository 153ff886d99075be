//go:build faults

package e2e

import "time"

const (
	cuts   = 200
	stalls = 30 * time.Second

	patience = 5 * time.Minute
)
