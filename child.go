package dormouse

import (
	"fmt"
	"slices"
)

// Limits of a tree of sessions.
const (
	// MaxChildren bounds the children of one session that have not ended.
	MaxChildren = 32
	// MaxDepth bounds how many parents a session may have above it.
	MaxDepth = 8
	// MaxOffspring bounds the sessions below one that has no parent.
	MaxOffspring = 256
)

// ChildID is the id of the child that an origin asks for: asked twice, it is the
// same child.
func ChildID(parent SessionID, origin string) SessionID {
	return SessionID(DeriveID(SessionPrefix, string(parent), "child", origin))
}

// Spawned is the payload of child.spawned: everything a child is made of. The
// child exists once child.started says so.
type Spawned struct {
	Child Created `json:"child"`
	// Prompt is what the child is asked first, if anything.
	Prompt []Block `json:"prompt,omitempty"`
}

// ChildFact is the payload of child.started, child.ending and child.ended.
type ChildFact struct {
	Child  SessionID `json:"child"`
	Reason string    `json:"reason,omitempty"`
}

// Within refuses a if it may do something that of may not: use a tool that of does not
// have, or use one without asking that of has to ask for.
func (a AgentConfig) Within(of AgentConfig) error {
	for _, t := range a.Tools {
		i := slices.IndexFunc(of.Tools, func(o ToolConfig) bool { return o.Name == t.Name })
		switch {
		case i < 0:
			return fmt.Errorf("the parent has no tool %q, so its child cannot have it: %w", t.Name, ErrInvalid)
		case t.Permission.strictness() < of.Tools[i].Permission.strictness():
			return fmt.Errorf("the parent's permission for %q is %s, so its child's must be as strict: %w", t.Name, of.Tools[i].Permission, ErrInvalid)
		}
	}
	for _, t := range a.CustomTools {
		if !slices.ContainsFunc(of.CustomTools, func(o CustomTool) bool { return o.Name == t.Name }) {
			return fmt.Errorf("the parent has no tool %q, so its child cannot have it: %w", t.Name, ErrInvalid)
		}
	}
	return nil
}
