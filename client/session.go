package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/dormouse-run/dormouse"
)

// Row is a session as lists show it.
type Row = dormouse.SessionRow

// Session is the state of a session.
type Session struct {
	Row
	Agent      dormouse.AgentConfig `json:"agent"`
	Recovery   dormouse.Recovery    `json:"recovery"`
	SleepAfter string               `json:"sleep_after"`
	// Environment is what its sandboxes are made from. Image is the digest that its image
	// had when the first one was made; empty for an image without a digest.
	Environment dormouse.Environment `json:"environment"`
	Image       string               `json:"image,omitempty"`
	Threads     []Thread             `json:"threads"`
	Sandbox     Sandbox              `json:"sandbox"`
	Workspace   Workspace            `json:"workspace"`
	Queue       int                  `json:"queue"`
	Questions   []Question           `json:"questions"`
	Wakeups     []Wakeup             `json:"wakeups"`
	// Children are the children that have not ended.
	Children  []ChildStage        `json:"children"`
	Attention string              `json:"attention,omitempty"`
	Ended     string              `json:"ended,omitempty"`
	Usage     dormouse.UsageTotal `json:"usage"`
}

// Workspace identifies the files that a session has now.
type Workspace struct {
	// Number counts the session's workspaces. Base is the snapshot that it is layered over.
	Number uint64              `json:"number"`
	Base   dormouse.SnapshotID `json:"base,omitempty"`
	// Snapshots is the number of snapshots that can be restored.
	Snapshots int `json:"snapshots"`
	// Due is the snapshot that is to be taken next.
	Due dormouse.SnapshotID `json:"due,omitempty"`
}

// Sandbox is the state of a session's sandbox.
type Sandbox struct {
	Phase      string `json:"phase"`
	Generation uint64 `json:"generation"`
}

// CreateOptions describe a new session. For what is left out, the server has defaults.
type CreateOptions struct {
	Title  string `json:"title,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`
	System string `json:"system,omitempty"`
	// Tools are the built-in tools of the agent: nil stands for the default, an empty list
	// for none. CustomTools are tools that the client executes, each the JSON of a
	// dormouse.CustomTool.
	Tools       []dormouse.ToolConfig `json:"tools,omitzero"`
	CustomTools []json.RawMessage     `json:"custom_tools,omitempty"`
	Recovery    dormouse.Recovery     `json:"recovery,omitempty"`
	// SleepAfter is how long the session is idle before it hibernates, such as 5m; 0s is never.
	SleepAfter string `json:"sleep_after,omitempty"`
	// Warm says whether the sandbox is started at once rather than when it is needed. Nil
	// stands for true.
	Warm        *bool                `json:"warm,omitempty"`
	Environment dormouse.Environment `json:"environment,omitzero"`
	Tags        []string             `json:"tags,omitempty"`
	Metadata    map[string]string    `json:"metadata,omitempty"`
	// Parent is the session that this one is a child of.
	Parent dormouse.SessionID `json:"parent,omitempty"`
	// Prompt is the first prompt, PromptID the client's own id for it.
	Prompt   []dormouse.Block `json:"prompt,omitempty"`
	PromptID string           `json:"prompt_id,omitempty"`
}

// Created is the new session, and its first prompt if there was one.
type Created struct {
	Row
	Prompt *Prompt `json:"prompt,omitempty"`
}

// Create creates a session. It does not wait for the sandbox; prompts are accepted at once.
func (c *Client) Create(ctx context.Context, o CreateOptions) (made Created, err error) {
	return made, c.Call(ctx, http.MethodPost, "/api/sessions", o, &made)
}

// Show returns the state of a session.
func (c *Client) Show(ctx context.Context, id dormouse.SessionID) (Session, error) {
	return get[Session](ctx, c, of(id), nil)
}

// ListOptions say which sessions a list holds.
type ListOptions struct {
	// Limit is the size of the page; 0 stands for 50. After is the last session of the page before.
	Limit int
	After dormouse.SessionID
	Phase dormouse.Phase
	// Text is searched for in titles, agents, tags and metadata, ignoring case.
	Text string
	// Tags and Metadata select the sessions that have all of them.
	Tags     []string
	Metadata map[string]string
	Parent   dormouse.SessionID
	// Archived also lists archived sessions.
	Archived bool
}

// Page is a page of sessions, the newest first.
type Page struct {
	Sessions []Row `json:"sessions"`
	// Next is the cursor of the next page; empty when this is the last.
	Next dormouse.SessionID `json:"next,omitempty"`
}

// List returns a page of sessions.
func (c *Client) List(ctx context.Context, o ListOptions) (Page, error) {
	q := query("limit", number(o.Limit), "after", string(o.After), "phase", string(o.Phase), "text", o.Text,
		"parent", string(o.Parent), "archived", flag(o.Archived))
	if len(o.Tags) > 0 {
		q["tag"] = o.Tags
	}
	for key, value := range o.Metadata {
		q.Set("metadata."+key, value)
	}
	return get[Page](ctx, c, "/api/sessions", q)
}

// number formats a number for a query string; 0 is left out.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// flag formats a boolean for a query string; false is left out.
func flag(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// DescribeOptions change the description of a session. Fields that are nil stay as they are.
type DescribeOptions struct {
	Title *string   `json:"title,omitempty"`
	Tags  *[]string `json:"tags,omitempty"`
	// Metadata is changed key by key; a key with the value nil is removed.
	Metadata map[string]*string `json:"metadata,omitempty"`
}

// Describe changes the title, tags and metadata of a session, in any phase.
func (c *Client) Describe(ctx context.Context, id dormouse.SessionID, o DescribeOptions) (row Row, err error) {
	return row, c.Call(ctx, http.MethodPatch, of(id), o, &row)
}

// Delete ends a session and deletes everything that belongs to it alone. It reports whether
// that is done; if not, the deletion is recorded and in progress.
func (c *Client) Delete(ctx context.Context, id dormouse.SessionID) (gone bool, err error) {
	var left []byte
	err = c.Call(KeepAnswer(ctx, &left), http.MethodDelete, of(id), nil, nil)
	return err == nil && len(left) == 0, err
}
