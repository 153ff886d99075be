package client

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Child is a session that another one spawned.
type Child struct {
	Row
	Stage Stage `json:"stage"`
}

// Stage is the state of a child as its parent has recorded it.
type Stage string

// The stages of a child.
const (
	// ChildSpawned is recorded, but its session is not created yet.
	ChildSpawned Stage = "spawned"
	ChildStarted Stage = "started"
	// ChildEnding was told to end and may still be running.
	ChildEnding Stage = "ending"
	ChildEnded  Stage = "ended"
)

// ChildStage is a child that has not ended, as its parent has it on record.
type ChildStage struct {
	Session dormouse.SessionID `json:"session"`
	Stage   Stage              `json:"stage"`
}

// Children is a page of children, the newest first.
type Children struct {
	Children []Child            `json:"children"`
	Next     dormouse.SessionID `json:"next,omitempty"`
}

// Children lists the sessions that a session has spawned, including those that have ended. A
// limit of 0 stands for 50; after is the last session of the page before.
func (c *Client) Children(ctx context.Context, id dormouse.SessionID, limit int, after dormouse.SessionID) (Children, error) {
	return get[Children](ctx, c, of(id, "children"), query("limit", number(limit), "after", string(after)))
}

// EndChild ends a child for good, and its own children with it.
func (c *Client) EndChild(ctx context.Context, id, child dormouse.SessionID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "children", string(child)), nil, &row)
}
