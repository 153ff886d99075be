package actor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
)

// snapshotForAgent takes a snapshot of the workspace under an id that follows from the op, so
// that asked for twice it is one, and words its ref.
func (a *Actor) snapshotForAgent(ctx context.Context, op dormouse.Op) (string, error) {
	p, err := a.deps.Workspaces.Snapshot(ctx, a.id, dormouse.ActorAgent, dormouse.SnapshotAsk{
		ID: dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, string(a.id), string(op.ID))),
	})
	if err != nil {
		return "", err
	}
	return jsonText(refResult{snapshot.Mint(a.deps.Refs, a.id, p.ID)}), nil
}

// snapshotAction answers an action that concerns the session's snapshots: what to change
// and what to say then.
func (j *journal) snapshotAction(ctx context.Context, w tool.Action) (law.Verb, string, error) {
	switch w := w.(type) { //nolint:gochecksumtype // those about snapshots
	case tool.Restore:
		return j.restore(ctx, w)
	case tool.Snapshots:
		text, err := j.listSnapshots(ctx, w.Limit)
		return nil, text, err
	case tool.DeleteSnapshot:
		_, p, err := j.resolve(ctx, w.Ref, w.Cross, "delete")
		if err != nil {
			return nil, "", err
		}
		if p.Session != j.a.id {
			err = j.a.deps.Sessions.Do(ctx, p.Session, dormouse.ActorAgent, law.ForgetSnapshots{IDs: []dormouse.SnapshotID{p.Snapshot}})
			return nil, `{"deleted":true}`, err
		}
		return law.ForgetSnapshots{IDs: []dormouse.SnapshotID{p.Snapshot}}, `{"deleted":true}`, nil
	}
	return nil, "", fmt.Errorf("%T is no action on snapshots: %w", w, dormouse.ErrInvalid)
}

func (j *journal) restore(ctx context.Context, w tool.Restore) (law.Verb, string, error) {
	state, ref, err := j.resolve(ctx, w.Ref, w.Cross, "restore")
	if err != nil {
		return nil, "", err
	}
	p, ok := state.Snapshot(ref.Snapshot)
	if !ok {
		return nil, "", fmt.Errorf("snapshot %s: %w", ref.Snapshot, dormouse.ErrNotFound)
	}
	m, err := j.a.deps.Workspaces.ReadManifest(ctx, ref.Session, p)
	if err != nil {
		return nil, "", err
	}
	own, err := j.a.deps.Sessions.Peek(ctx, j.a.id)
	if err != nil {
		return nil, "", err
	}
	reason, origin := dormouse.SwapRestored, ref.Session
	if w.Branch {
		reason = dormouse.SwapBranched
	}
	if origin == j.a.id {
		origin = ""
	}
	verb := law.Swap{Within: j.work.Turn}
	if err := own.RefusesSwap(verb); err != nil {
		return nil, "", err
	}
	replaced, own, err := j.a.deps.Workspaces.KeepReplaced(ctx, own, dormouse.ActorAgent)
	if err != nil {
		return nil, "", err
	}
	swap, err := j.a.deps.Workspaces.PrepareSwap(ctx, own, m, reason, origin)
	if err != nil {
		return nil, "", err
	}
	swap.Replaced = replaced
	verb.WorkspaceSwap = swap
	var out struct {
		Ref      workspaceRef  `json:"ref"`
		Replaced *snapshot.Ref `json:"replaced,omitempty"`
	}
	if replaced != "" {
		ref := snapshot.Mint(j.a.deps.Refs, j.a.id, replaced)
		out.Replaced = &ref
	}
	out.Ref = workspaceRef{Provider: snapshot.Provider, Ref: workspaceInner{Session: j.a.id, Workspace: swap.Number, Snapshot: swap.Snapshot}}
	return verb, jsonText(out), nil
}

// workspaceRef is how an agent holds the workspace it has.
type workspaceRef struct {
	Provider string         `json:"providerId"`
	Ref      workspaceInner `json:"ref"`
}

type workspaceInner struct {
	Session   dormouse.SessionID  `json:"session"`
	Workspace uint64              `json:"workspace"`
	Snapshot  dormouse.SnapshotID `json:"snapshot"`
}

type refResult struct {
	Ref snapshot.Ref `json:"ref"`
}

// jsonText is a result as a model reads it.
func jsonText(v any) string { return string(dormouse.Encode(v)) }

// resolve finds out whose snapshot a ref is. One that the session may not use is as
// good as none.
func (j *journal) resolve(ctx context.Context, raw json.RawMessage, cross bool, what string) (law.State, snapshot.Ref, error) {
	ref, err := snapshot.ParseRef(raw)
	if err != nil {
		return law.State{}, ref, err
	}
	missing := fmt.Errorf("snapshot %s: %w", ref.Snapshot, dormouse.ErrNotFound)
	if ref.Check(j.a.deps.Refs) != nil {
		return law.State{}, ref, missing // a session that may not use a ref must not learn whether it is good
	}
	if ref.Session != j.a.id && (!cross || !j.a.deps.CrossSession) {
		return law.State{}, ref, missing
	}
	state, err := j.a.deps.Sessions.Peek(ctx, ref.Session)
	if err != nil {
		return law.State{}, ref, missing
	}
	if ref.Session != j.a.id {
		own, err := j.a.deps.Sessions.Row(ctx, j.a.id)
		if err != nil {
			return law.State{}, ref, err
		}
		if own.Tenant != state.Tenant {
			return law.State{}, ref, missing
		}
		j.a.logger.WarnContext(ctx, "an agent uses a snapshot of another session", "what", what, "origin", ref.Session, "snapshot", ref.Snapshot)
	}
	return state, ref, nil
}

// listSnapshots words the snapshots that can be restored, the newest first.
func (j *journal) listSnapshots(ctx context.Context, limit int) (string, error) {
	state, err := j.a.deps.Sessions.Peek(ctx, j.a.id)
	if err != nil {
		return "", err
	}
	type listed struct {
		Ref   snapshot.Ref `json:"ref"`
		Taken time.Time    `json:"taken_at"`
	}
	out := struct {
		Snapshots []listed `json:"snapshots"`
		Total     int      `json:"total"`
	}{Snapshots: []listed{}, Total: len(state.Snapshots)}
	for _, p := range slices.Backward(state.Snapshots) {
		if len(out.Snapshots) == limit {
			break
		}
		out.Snapshots = append(out.Snapshots, listed{snapshot.Mint(j.a.deps.Refs, j.a.id, p.ID), p.Taken})
	}
	return jsonText(out), nil
}
