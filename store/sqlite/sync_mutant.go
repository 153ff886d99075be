//go:build mutant_sync_normal

package sqlite

// synchronous is wrong on purpose: a test of power cuts must notice it.
const synchronous = "NORMAL"
