// Package actor is the only writer of a session. For each command it asks the law, makes
// the answer durable, applies it to its state, makes the world match what the law wants,
// and tells followers. Of the registry that loads it, it knows only three small interfaces:
// other sessions, workspaces and slots.
package actor
