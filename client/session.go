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

// Session is everything there is to see of a session besides its events.
type Session struct {
	Row
	Agent      dormouse.AgentConfig `json:"agent"`
	Recovery   dormouse.Recovery    `json:"recovery"`
	SleepAfter string               `json:"sleep_after"`
	// Environment is what its sandboxes are made of, and Image the digest that its
	// image had when the first was; empty for an image that has none.
	Environment dormouse.Environment `json:"environment"`
	Image       string               `json:"image,omitempty"`
	Threads     []Thread             `json:"threads"`
	Sandbox     Sandbox              `json:"sandbox"`
	Workspace   Workspace            `json:"workspace"`
	Queue       int                  `json:"queue"`
	Questions   []Question           `json:"questions"`
	Wakeups     []Wakeup             `json:"wakeups"`
	// Children are those that have not ended.
	Children  []ChildStage        `json:"children"`
	Attention string              `json:"attention,omitempty"`
	Ended     string              `json:"ended,omitempty"`
	Usage     dormouse.UsageTotal `json:"usage"`
}

// Workspace is which files a session has.
type Workspace struct {
	// Number counts its workspaces, Base is the snapshot that this one lies over.
	Number uint64              `json:"number"`
	Base   dormouse.SnapshotID `json:"base,omitempty"`
	// Snapshots is how many can be gone back to.
	Snapshots int `json:"snapshots"`
	// Due is the snapshot that is about to be taken.
	Due dormouse.SnapshotID `json:"due,omitempty"`
}

// Sandbox is where a session's sandbox stands.
type Sandbox struct {
	Phase      string `json:"phase"`
	Generation uint64 `json:"generation"`
}

// CreateOptions say what a session is like. Where they say nothing, the server decides.
type CreateOptions struct {
	Title  string `json:"title,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`
	System string `json:"system,omitempty"`
	// Tools are the built-in tools that the agent has; an empty list that is not nil
	// stands for none. CustomTools are those that the client answers, each the JSON of
	// a dormouse.CustomTool.
	Tools       []dormouse.ToolConfig `json:"tools,omitzero"`
	CustomTools []json.RawMessage     `json:"custom_tools,omitempty"`
	Recovery    dormouse.Recovery     `json:"recovery,omitempty"`
	// SleepAfter is a duration such as 5m; 0s is never.
	SleepAfter string `json:"sleep_after,omitempty"`
	// Warm says whether the sandbox is started before it is needed. It is unless this
	// points to false.
	Warm        *bool                `json:"warm,omitempty"`
	Environment dormouse.Environment `json:"environment,omitzero"`
	Tags        []string             `json:"tags,omitempty"`
	Metadata    map[string]string    `json:"metadata,omitempty"`
	// Parent is the session that this one is a child of.
	Parent dormouse.SessionID `json:"parent,omitempty"`
	// Prompt is the first one, and PromptID the client's own id for it.
	Prompt   []dormouse.Block `json:"prompt,omitempty"`
	PromptID string           `json:"prompt_id,omitempty"`
}

// Created is a session that was made, and its first prompt if there was one.
type Created struct {
	Row
	Prompt *Prompt `json:"prompt,omitempty"`
}

// Create makes a session. It accepts prompts at once and does not wait for its sandbox.
func (c *Client) Create(ctx context.Context, o CreateOptions) (made Created, err error) {
	return made, c.Call(ctx, http.MethodPost, "/api/sessions", o, &made)
}

// Show returns all there is to see of a session besides its events.
func (c *Client) Show(ctx context.Context, id dormouse.SessionID) (Session, error) {
	return get[Session](ctx, c, of(id), nil)
}

// ListOptions say which sessions a list holds.
type ListOptions struct {
	// Limit is how many; 0 stands for 50. After is the session that ended the page before.
	Limit int
	After dormouse.SessionID
	Phase dormouse.Phase
	// Text is looked for in titles, agents, tags and metadata, in any case.
	Text string
	// Tags and Metadata are what each of them has.
	Tags     []string
	Metadata map[string]string
	Parent   dormouse.SessionID
	// Archived also lists archived sessions.
	Archived bool
}

// Page is some sessions, the newest first.
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

// DescribeOptions change what people say about a session. What is nil stays.
type DescribeOptions struct {
	Title *string   `json:"title,omitempty"`
	Tags  *[]string `json:"tags,omitempty"`
	// Metadata is changed key by key; a key whose value is nil goes.
	Metadata map[string]*string `json:"metadata,omitempty"`
}

// Describe changes what people say about a session, in any phase of its life.
func (c *Client) Describe(ctx context.Context, id dormouse.SessionID, o DescribeOptions) (row Row, err error) {
	return row, c.Call(ctx, http.MethodPatch, of(id), o, &row)
}

// Delete ends a session and removes everything that only it had. It reports whether it
// is gone; if not, its deletion is recorded and in progress.
func (c *Client) Delete(ctx context.Context, id dormouse.SessionID) (gone bool, err error) {
	var left []byte
	err = c.Call(KeepAnswer(ctx, &left), http.MethodDelete, of(id), nil, nil)
	return err == nil && len(left) == 0, err
}
