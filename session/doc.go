// Package session is the sessions of a server: the registry that finds or loads the actor
// of a session, asks the server that has it, and wakes sessions when something is due; and
// what doors ask for besides commands, such as reading, listing, branching and restoring.
//
// The law (package law) decides what happens in a session. One goroutine for each session
// (package actor) makes a decision durable, applies it to its state, and then makes the
// world match what the law wants. Starting after a crash is the same code as carrying on.
package session
