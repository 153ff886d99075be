package dormouse

import "strings"

// Actor is the person or part of the system that caused a command or an event:
// "user:ada", "agent", "server".
type Actor string

// The actors that are not people.
const (
	// ActorAgent is the agent of the event's thread.
	ActorAgent Actor = "agent"
	// ActorServer is the runtime itself.
	ActorServer Actor = "server"
)

// User is the actor of a signed-in person or program.
func User(name string) Actor { return Actor("user:" + name) }

// FromSession is the actor of a session that asks another one for something.
func FromSession(id SessionID) Actor { return Actor(sessionActor + string(id)) }

const sessionActor = "session:"

// IsSession reports whether it is another session that asks.
func (a Actor) IsSession() bool { return strings.HasPrefix(string(a), sessionActor) }
