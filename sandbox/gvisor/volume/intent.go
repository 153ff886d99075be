//go:build linux

package volume

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// intent lists the paths that a recovery is going to put back and that the next recovery
// could mistake for paths that a user has removed. The order of durable steps is:
//
// 1. the intent, and recovered.json with the same paths;
// 2. what was found is renamed, and the snapshot's version gets its name;
// 3. the volume is synced;
// 4. the intent is removed;
// 5. the failure of the volume is cleared, and the session may use it.
//
// A recovery that is killed between 1 and 4 leaves the intent to the next one, which does
// the rest; after 4 everything that was reported is on the disk. Only recoveries write to
// the volume before 5, so that an intent never undoes what a user removed later.
type intent struct {
	Workspace uint64
	Snapshot  dormouse.SnapshotID
	Paths     [][]byte // names are any bytes
}

func (v Volume) intentNote() string { return filepath.Join(v.Dir, "recovering.json") }

// writeIntent adds to what an earlier recovery has begun.
func (v Volume) writeIntent(r sandbox.Recovery, back *layer.Recovery) error {
	unsure := back.Ambiguous()
	if len(unsure) == 0 {
		return nil
	}
	note := intent{Workspace: r.Workspace.Number, Snapshot: r.Snapshot}
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
	return layer.Full(atomicfile.Write(v.intentNote(), raw, 0o600))
}

// readIntent returns the paths for the same workspace and snapshot.
func (v Volume) readIntent(r sandbox.Recovery) ([]string, error) {
	raw, err := os.ReadFile(v.intentNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var was intent
	if err == nil {
		err = json.Unmarshal(raw, &was)
	}
	if err != nil || was.Workspace != r.Workspace.Number || was.Snapshot != r.Snapshot {
		return nil, err
	}
	paths := make([]string, len(was.Paths))
	for i, path := range was.Paths {
		paths[i] = string(path)
	}
	return paths, nil
}

// removeIntent removes the intent durably.
func (v Volume) removeIntent() error {
	err := os.Remove(v.intentNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(v.Dir))
}
