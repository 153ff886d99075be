package dormouse

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Recovery says whether the server or a person decides what to do when a crash ends an
// attempt.
type Recovery string

// The recovery policies.
const (
	// RecoverAuto starts the next attempt by itself.
	RecoverAuto Recovery = "auto"
	// RecoverAsk leaves the turn blocked until a person says retry or continue.
	RecoverAsk Recovery = "ask"
)

// Permission says whether a tool call runs at once or waits for a person.
type Permission string

// The permissions.
const (
	PermissionAllow Permission = "allow"
	PermissionAsk   Permission = "ask"
	// PermissionAuto leaves it to the server to judge each call: those that change
	// nothing run at once.
	PermissionAuto Permission = "auto"
)

// strictness orders permissions by how little they let through.
func (p Permission) strictness() int {
	switch p {
	case PermissionAsk:
		return 2
	case PermissionAuto:
		return 1
	case PermissionAllow:
	}
	return 0
}

// ToolConfig turns on one built-in tool.
type ToolConfig struct {
	Name       string     `json:"name"`
	Permission Permission `json:"permission,omitempty"`
}

// CustomTool is a tool the client runs.
type CustomTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// AgentConfig is the agent a session was made with, whole: later changes of the
// catalog do not reach a session that exists.
type AgentConfig struct {
	// ID and Version say which agent of the catalog it is, if it is one.
	ID          string       `json:"id,omitempty"`
	Version     int          `json:"version,omitempty"`
	Name        string       `json:"name"`
	Model       string       `json:"model"`
	Effort      string       `json:"effort,omitempty"` // as usual if empty
	System      string       `json:"system,omitempty"`
	Tools       []ToolConfig `json:"tools"`
	CustomTools []CustomTool `json:"custom_tools,omitempty"`
	// Shown is the agent as the Managed Agents API shows it in a session.
	Shown json.RawMessage `json:"shown,omitempty"`
}

// Created is the payload of session.created: everything about a session that
// never changes.
type Created struct {
	Session SessionID `json:"session"`
	Tenant  string    `json:"tenant"`
	Owner   Actor     `json:"owner"`
	Parent  SessionID `json:"parent,omitempty"`
	// Depth counts the parents above, Offspring how many sessions a child may have
	// below it: its parent gave it a share of its own.
	Offspring int               `json:"offspring,omitempty"`
	Depth     int               `json:"depth,omitempty"`
	Title     string            `json:"title,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Agent     AgentConfig       `json:"agent"`
	// Recovery says whether the server or a person decides after a crash.
	Recovery Recovery `json:"recovery"`
	// FlushOnError cancels what is queued when a turn runs out of attempts, as
	// the Managed Agents API says.
	FlushOnError bool `json:"flush_on_error,omitempty"`
	// Warm starts the sandbox at once instead of on first need.
	Warm bool `json:"warm,omitempty"`
	// SleepAfter is how long the sandbox may be idle; 0 keeps it up.
	SleepAfter time.Duration `json:"sleep_after,omitempty"`
	// Environment describes its sandboxes. A child has its parent's. It is empty in logs
	// from before there were environments, and then is the server's default.
	Environment Environment `json:"environment,omitzero"`
	// EnvironmentID says which environment of the catalog that is, if it is one.
	EnvironmentID string `json:"environment_id,omitempty"`
	// Request is the digest of the request that created it, if the client gave that an
	// id: sent again it is the same session.
	Request Digest `json:"request,omitempty"`
	// Branch says where it comes from, if it goes on from another session.
	Branch *Branched `json:"branch,omitempty"`
}

// Branched says where a branch begins: at a seq of another session's log, and at a
// snapshot of its workspace if it had files.
type Branched struct {
	From     SessionID  `json:"from"`
	At       uint64     `json:"at"`
	Snapshot SnapshotID `json:"snapshot,omitempty"`
	// Transcript is how many of the events that follow are copies of what was said there.
	Transcript int `json:"talk,omitempty"`
	// Shell is the name of the first thread's shell there, if processes are copied.
	Shell ThreadID `json:"shell,omitempty"`
}

// Limits of a session's description.
const (
	MaxSystem      = 100_000
	MaxName        = 256
	MaxToolName    = 128
	MaxCustomTools = 128
	MaxSchema      = 64 << 10
	MaxShown       = 2 << 20
)

// Validate refuses a session that could not work.
func (c Created) Validate() error {
	if err := c.Session.Validate(); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := (Description{Title: &c.Title, Tags: &c.Tags, Metadata: c.Metadata}).Validate(); err != nil {
		return err
	}
	for _, s := range []string{c.EnvironmentID, c.Tenant, string(c.Owner)} {
		if err := ValidateText(s); err != nil {
			return err
		}
	}
	switch c.Recovery {
	case RecoverAuto, RecoverAsk:
	default:
		return fmt.Errorf("recovery is %q; it must be auto or ask: %w", truncate(string(c.Recovery), 40), ErrInvalid)
	}
	if len(c.EnvironmentID) > MaxName {
		return fmt.Errorf("environment id is over %d bytes: %w", MaxName, ErrInvalid)
	}
	if c.SleepAfter < 0 {
		return fmt.Errorf("sleep_after is negative: %w", ErrInvalid)
	}
	if err := c.Environment.Validate(); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return c.Agent.Validate()
}

// Validate refuses an agent that could not work.
func (a AgentConfig) Validate() error {
	if n := utf8.RuneCountInString(a.System); n > MaxSystem {
		return fmt.Errorf("system has %d characters, at most %d are taken: %w", n, MaxSystem, ErrTooLarge)
	}
	for _, s := range []string{a.ID, a.System, a.Name, a.Model, a.Effort} {
		if err := ValidateText(s); err != nil {
			return err
		}
	}
	if a.Model == "" || utf8.RuneCountInString(a.Model) > MaxName || utf8.RuneCountInString(a.Name) > MaxName {
		return fmt.Errorf("agent needs a model, and names of at most %d characters: %w", MaxName, ErrInvalid)
	}
	if err := a.validateSource(); err != nil {
		return err
	}
	return a.validateTools()
}

// validateSource looks at what says where the agent is from.
func (a AgentConfig) validateSource() error {
	if len(a.ID) > MaxName || a.Version < 0 || a.ID == "" && a.Version != 0 {
		return fmt.Errorf("agent %q has no version %d: %w", truncate(a.ID, 40), a.Version, ErrInvalid)
	}
	if len(a.Shown) > MaxShown {
		return fmt.Errorf("agent is shown with %d bytes, at most %d are taken: %w", len(a.Shown), MaxShown, ErrTooLarge)
	}
	if len(a.Shown) > 0 && !json.Valid(a.Shown) {
		return fmt.Errorf("agent is shown as what is not JSON: %w", ErrInvalid)
	}
	return nil
}

func (a AgentConfig) validateTools() error {
	if len(a.CustomTools) > MaxCustomTools {
		return fmt.Errorf("%d custom tools, at most %d are taken: %w", len(a.CustomTools), MaxCustomTools, ErrTooLarge)
	}
	seen := make(map[string]bool)
	name := func(s string) error {
		if s == "" || len(s) > MaxToolName || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			return fmt.Errorf("tool name %q must be 1 to %d letters, digits, _ or -: %w", truncate(s, 40), MaxToolName, ErrInvalid)
		}
		if seen[s] {
			return fmt.Errorf("tool %q is named twice: %w", s, ErrInvalid)
		}
		seen[s] = true
		return nil
	}
	for _, t := range a.Tools {
		if err := name(t.Name); err != nil {
			return err
		}
		switch t.Permission {
		case "", PermissionAllow, PermissionAsk, PermissionAuto:
		default:
			return fmt.Errorf("permission of %q must be allow, ask or auto: %w", t.Name, ErrInvalid)
		}
	}
	for _, t := range a.CustomTools {
		if err := name(t.Name); err != nil {
			return err
		}
		if len(t.InputSchema) > MaxSchema || len(t.Description) > MaxSchema {
			return fmt.Errorf("description or schema of %q is over %d bytes: %w", t.Name, MaxSchema, ErrTooLarge)
		}
		if len(t.InputSchema) > 0 && !json.Valid(t.InputSchema) {
			return fmt.Errorf("input_schema of %q is not JSON: %w", t.Name, ErrInvalid)
		}
	}
	return nil
}
