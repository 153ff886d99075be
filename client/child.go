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

// Stage is where a child stands for its parent.
type Stage string

// The stages of a child.
const (
	// ChildSpawned is recorded and not made yet.
	ChildSpawned Stage = "spawned"
	ChildStarted Stage = "started"
	// ChildEnding is to end, and may not have yet.
	ChildEnding Stage = "ending"
	ChildEnded  Stage = "ended"
)

// ChildStage is a child that has not ended, as its parent has it on record.
type ChildStage struct {
	Session dormouse.SessionID `json:"session"`
	Stage   Stage              `json:"stage"`
}

// Children is a page of them, the newest first.
type Children struct {
	Children []Child            `json:"children"`
	Next     dormouse.SessionID `json:"next,omitempty"`
}

// Children lists the sessions that one has spawned, those that have ended too. A limit of
// 0 stands for 50; after is the session that ended the page before.
func (c *Client) Children(ctx context.Context, id dormouse.SessionID, limit int, after dormouse.SessionID) (Children, error) {
	return get[Children](ctx, c, of(id, "children"), query("limit", number(limit), "after", string(after)))
}

// EndChild ends a child for good, and its own children with it.
func (c *Client) EndChild(ctx context.Context, id, child dormouse.SessionID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "children", string(child)), nil, &row)
}
