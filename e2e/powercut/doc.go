// Package powercut is a file system that forgets what was not synced.
//
// It passes through to a real directory, but keeps what is written to a file
// (data and truncations) in memory until that file is synced. Cut drops
// everything unsynced, as losing power does. Making, renaming and removing files
// passes through at once: a directory entry counts as durable, and whoever
// relies on the order of those tests that order by itself.
package powercut
