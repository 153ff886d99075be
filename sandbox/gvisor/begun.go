//go:build linux

package gvisor

import (
	"encoding/json"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// begun is the note of the paths that a recovery has begun to put back and that the next
// one could take for removed by somebody. The order of durable steps is:
//
//  1. the note, and recovered.json, which tells of the same paths;
//  2. what was found goes out of the way, and the snapshot's version gets its name;
//  3. the volume is synced;
//  4. the note goes;
//  5. the failure of the volume is forgotten, and the session may use it.
//
// Whoever is killed between 1 and 4 leaves the note to the next recovery, which does the
// rest; after 4 everything that was told is on the disk. Nobody but recoveries writes to
// the volume before 5, so that the note never undoes what somebody removed later.
type begun struct {
	Workspace uint64
	Snapshot  dormouse.SnapshotID
	Paths     [][]byte // names are any bytes
}

func (v volume) begunNote() string { return filepath.Join(v.dir, "recovering.json") }

// noteBegun notes what is going to be put back, beside what a recovery before has begun.
func (v volume) noteBegun(r sandbox.Recovery, back *layer.Recovery) error {
	unsure := back.Ambiguous()
	if len(unsure) == 0 {
		return nil
	}
	note := begun{Workspace: r.Workspace.Number, Snapshot: r.Snapshot}
	seen := make(map[string]bool)
	for _, all := range [][]string{back.Interrupted, unsure} {
		for _, path := range all {
			if !seen[path] {
				seen[path] = true
				note.Paths = append(note.Paths, []byte(path))
			}
		}
	}
	raw, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return layer.Full(atomicfile.Write(v.begunNote(), raw, 0o600))
}
