package law

import "github.com/dormouse-run/dormouse"

// Branches reports whether events of this type are what was said.
func Branches(t dormouse.EventType) bool {
	switch t { //nolint:exhaustive // the others concern the session they are of
	case dormouse.UserMessage, dormouse.SystemMessage, dormouse.AgentMessage, dormouse.AgentThinking, dormouse.AgentToolUse, dormouse.AgentCustomToolUse,
		dormouse.AgentToolResult, dormouse.UserCustomToolResult, dormouse.SpanModelRequestStart, dormouse.SpanModelRequestEnd:
		return true
	}
	return false
}

// branch adds what a branch begins with. What was said keeps its ids, by which it
// refers to itself.
func (d *draft) branch(v Create) {
	primary := dormouse.PrimaryThread(d.Session)
	for _, e := range v.Transcript {
		d.addNamed(e.ID, e.Type, primary, e.Actor, e.Payload)
	}
	if v.Files == nil {
		return
	}
	p := *v.Files
	d.record(dormouse.WorkspaceSwapped, "", dormouse.WorkspaceSwap{
		Number: 1, Snapshot: p.ID, Layers: p.Layers, Reason: dormouse.SwapBranched, Origin: v.Branch.From, Processes: v.Processes,
	})
	d.record(dormouse.SnapshotTaken, "", dormouse.Snapshot{
		ID: p.ID, Label: p.Label, Reason: dormouse.SnapshotOfBranch, At: d.Seq, Workspace: 1, Layers: p.Layers,
	})
}
