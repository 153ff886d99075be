package tool

import (
	_ "embed"
	"encoding/json"
	"errors"

	"github.com/dormouse-run/dormouse/model"
)

//go:embed workspace_snapshot.md
var workspaceSnapshotText string

//go:embed workspace_restore.md
var workspaceRestoreText string

//go:embed workspace_branch.md
var workspaceBranchText string

//go:embed workspace_list_snapshots.md
var workspaceListText string

//go:embed workspace_delete_snapshot.md
var workspaceDeleteText string

// MaxListed is how many snapshots are listed at once.
const MaxListed = 100

type workspaceSnapshot struct{}

func (workspaceSnapshot) Spec() model.Tool {
	return model.Tool{Name: "workspace_snapshot", Description: workspaceSnapshotText, InputSchema: noInputSchema}
}

func (workspaceSnapshot) Action(input json.RawMessage) (Action, error) {
	return Snapshot{}, decode(input, &noInput{})
}

// refInput is what names a snapshot.
type refInput struct {
	Ref   json.RawMessage `json:"ref" jsonschema:"The ref of the snapshot, as it was given to you."`
	Cross bool            `json:"allowCrossSession,omitempty" jsonschema:"Set if the snapshot is another session's."`
}

var refSchema = schemaFor[refInput]()

func readRef(input json.RawMessage) (refInput, error) {
	var in refInput
	if err := decode(input, &in); err != nil {
		return in, err
	}
	if len(in.Ref) == 0 || in.Ref[0] != '{' {
		return in, errors.New("ref must be the object that workspace_snapshot returned")
	}
	return in, nil
}

func refTool(name, text string) model.Tool {
	return model.Tool{Name: name, Description: text, InputSchema: refSchema}
}

type workspaceRestore struct{}

func (workspaceRestore) Spec() model.Tool { return refTool("workspace_restore", workspaceRestoreText) }

func (workspaceRestore) Action(input json.RawMessage) (Action, error) {
	in, err := readRef(input)
	return Restore{Ref: in.Ref, Cross: in.Cross}, err
}

type workspaceBranch struct{}

func (workspaceBranch) Spec() model.Tool { return refTool("workspace_branch", workspaceBranchText) }

func (workspaceBranch) Action(input json.RawMessage) (Action, error) {
	in, err := readRef(input)
	return Restore{Ref: in.Ref, Cross: in.Cross, Branch: true}, err
}

type workspaceDelete struct{}

func (workspaceDelete) Spec() model.Tool {
	return refTool("workspace_delete_snapshot", workspaceDeleteText)
}

func (workspaceDelete) Action(input json.RawMessage) (Action, error) {
	in, err := readRef(input)
	return DeleteSnapshot(in), err
}

type workspaceList struct{}

type workspaceListInput struct {
	Limit int  `json:"limit,omitempty" jsonschema:"List at most so many, the newest; 100 at most."`
	Cross bool `json:"allowCrossSession,omitempty" jsonschema:"Set if the snapshot is another session's."`
}

var workspaceListSchema = schemaFor[workspaceListInput](minimum("limit", 1))

func (workspaceList) Spec() model.Tool {
	return model.Tool{Name: "workspace_list_snapshots", Description: workspaceListText, InputSchema: workspaceListSchema}
}

func (workspaceList) Action(input json.RawMessage) (Action, error) {
	var in workspaceListInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	if in.Limit < 0 {
		return nil, errors.New("limit must be at least 1")
	}
	if in.Limit == 0 || in.Limit > MaxListed {
		in.Limit = MaxListed
	}
	return Snapshots(in), nil
}
