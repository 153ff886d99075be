// Package actor is the only writer of a session. For each command it asks the law, makes
// the answer durable, applies it to its state, makes the world match what the law wants, and
// tells followers. It knows nothing of the registry that loads it but three small
// interfaces: other sessions, workspaces and slots.
package actor
