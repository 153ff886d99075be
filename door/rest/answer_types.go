package rest

import "github.com/dormouse-run/dormouse/client"

// What the door answers with is declared by the client: what one side writes is what the
// other reads.
type (
	Session    = client.Session
	Created    = client.Created
	Page       = client.Page
	Workspace  = client.Workspace
	Sandbox    = client.Sandbox
	Prompt     = client.Prompt
	Queued     = client.Queued
	Thread     = client.Thread
	Turn       = client.Turn
	Waiting    = client.Waiting
	Question   = client.Question
	Wakeup     = client.Wakeup
	Child      = client.Child
	ChildStage = client.ChildStage
	Stage      = client.Stage
	Exec       = client.Exec
	Copied     = client.Copied
	Processes  = client.Processes
	Used       = client.Used
	Ports      = client.Ports
	Terminals  = client.Terminals
	Snapshot   = client.Snapshot
	Snapshots  = client.Snapshots
	Pruned     = client.Pruned
	Imported   = client.Imported
	Restored   = client.Restored
	Diff       = client.Diff
)

// The stages of a child.
const (
	ChildSpawned = client.ChildSpawned
	ChildStarted = client.ChildStarted
	ChildEnding  = client.ChildEnding
	ChildEnded   = client.ChildEnded
)

const (
	// TreeStatus is the trailer that says what a tar of files held.
	TreeStatus = client.TreeStatus
	// TerminalID is the header that names the terminal a WebSocket shows.
	TerminalID = client.TerminalID
)
