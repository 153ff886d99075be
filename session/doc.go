// Package session runs sessions. The law, in package law, decides what happens; one
// goroutine for each session, the Actor, makes a decision durable, believes it, and then
// makes the world match what the law wants. Starting after a crash is the same code as
// carrying on.
package session
