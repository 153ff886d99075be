// Package law decides what happens in a session. It is pure: no clock, no randomness, no
// I/O and no goroutines, so that it can be tested as a table and replayed for ever.
//
//	Decide   what a command leads to, or why it is refused
//	Apply    what an event changes
//	Want     what should be going on now
//	Project  the rows that are derived from a log
//
// See DESIGN.md beside this file for the invariants.
package law
