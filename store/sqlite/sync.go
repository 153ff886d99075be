//go:build !mutant_sync_normal

package sqlite

// synchronous makes every commit wait for the disk. NORMAL loses acknowledged
// commits in a power cut.
const synchronous = "FULL"
