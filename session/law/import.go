package law

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// importSnapshot records a snapshot that was brought in, beside the chain.
func (d *draft) importSnapshot(v ImportSnapshot) error {
	if err := v.Ask.Validate(); err != nil {
		return err
	}
	if _, taken := d.Snapshot(v.Ask.ID); taken {
		return nil
	}
	if len(v.Layers) == 0 {
		return fmt.Errorf("snapshot %s has no layers: %w", v.Ask.ID, dormouse.ErrInvalid)
	}
	d.add(dormouse.SnapshotTaken, "", dormouse.Snapshot{
		ID: v.Ask.ID, Label: v.Ask.Label, Reason: dormouse.SnapshotImported, At: d.Seq, Aside: true, Layers: v.Layers,
	})
	d.retain(v.Keep)
	return nil
}

// begin adds the files that a session of an image begins with.
func (d *draft) begin(p dormouse.Snapshot) {
	d.record(dormouse.WorkspaceSwapped, "", dormouse.WorkspaceSwap{Number: 1, Snapshot: p.ID, Layers: p.Layers, Reason: dormouse.SwapImported})
	d.record(dormouse.SnapshotTaken, "", dormouse.Snapshot{
		ID: p.ID, Label: p.Label, Reason: dormouse.SnapshotImported, At: d.Seq, Workspace: 1, Layers: p.Layers,
	})
}
