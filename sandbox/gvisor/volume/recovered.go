//go:build linux

package volume

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// recoveredNote is what a recovery did that is not in the log yet.
func (v Volume) recoveredNote() string { return filepath.Join(v.Dir, "recovered.json") }

func (v Volume) ReadRecovered() (*sandbox.Recovered, error) {
	raw, err := os.ReadFile(v.recoveredNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	r := new(sandbox.Recovered)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (v Volume) writeRecovered(r *sandbox.Recovered) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(v.recoveredNote(), raw, 0o600)
}

// ForgetRecovered removes that note, if it has this id.
func (v Volume) ForgetRecovered(id string) error {
	is, err := v.ReadRecovered()
	if err != nil || is == nil || is.ID != id {
		return err
	}
	if err := os.Remove(v.recoveredNote()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

// noteMoved notes that what was found at a path is kept outside the volume.
func (v Volume) noteMoved(r *sandbox.Recovered, path, outside string) error {
	changed := r.Outside != outside
	r.Outside = outside
	for i := range r.Files {
		if f := &r.Files[i]; f.Path == sandbox.ShortenPath(path) && !f.Outside {
			f.SavedAs, f.Outside, changed = "", true, true
		}
	}
	if !changed {
		return nil
	}
	return v.writeRecovered(r)
}

// add lists files that are put back, except those that are listed already.
func add(r *sandbox.Recovered, files []layer.Restored) {
	before := r.Files
	for _, f := range files {
		f = layer.Restored{Path: sandbox.ShortenPath(f.Path), SavedAs: sandbox.ShortenPath(f.SavedAs)}
		n := slices.IndexFunc(before, func(o layer.Restored) bool { return o.Path == f.Path })
		if n >= 0 {
			if f.SavedAs != "" && before[n].SavedAs == "" { // it still exists, or exists again
				before[n].SavedAs = f.SavedAs
			}
			continue
		}
		if r.Count++; len(r.Files) < sandbox.MaxListed {
			r.Files = append(r.Files, f)
		}
	}
}
