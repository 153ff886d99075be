package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Named is what the logs of all sessions reference: the sessions, and the blobs of layers
// that their files are made of.
type Named struct {
	sessions map[dormouse.SessionID]bool
	layers   map[dormouse.Digest]string // and which sessions need it
}

// Named reads the logs of all sessions.
func (c *Client) Named(ctx context.Context) (Named, error) {
	n := Named{make(map[dormouse.SessionID]bool), make(map[dormouse.Digest]string)}
	var page struct {
		Sessions []Shown `json:"sessions"`
	}
	if err := c.Get(ctx, "/api/sessions?limit=200&archived=true", &page); err != nil {
		return n, fmt.Errorf("list sessions: %w", err)
	}
	for _, row := range page.Sessions {
		log, err := (&Session{Client: c, ID: row.Session}).Events(ctx)
		if Missing(err) {
			continue // by now
		}
		if err != nil {
			return n, err
		}
		n.sessions[row.Session] = true
		n.read(row.Session, log)
	}
	return n, nil
}

// read adds what a log says: the snapshots that were not deleted, the files that the
// session has, and its newest snapshot.
func (n Named) read(id dormouse.SessionID, log []dormouse.Event) {
	needs := make(map[string][]dormouse.Layer)
	for _, e := range log {
		switch e.Type { //nolint:exhaustive // those that name
		case dormouse.SnapshotTaken:
			p := Decode[dormouse.Snapshot](e)
			needs[string(p.ID)], needs["newest"] = p.Layers, p.Layers
		case dormouse.SnapshotDeleted:
			for _, gone := range Decode[dormouse.SnapshotsGone](e).IDs {
				delete(needs, string(gone))
			}
		case dormouse.WorkspaceSwapped:
			p := Decode[dormouse.WorkspaceSwap](e)
			needs["base"], needs["newest"] = p.Layers, p.Layers
		}
	}
	for who, layers := range needs {
		for _, l := range layers {
			n.layers[l.Digest] = fmt.Sprintf("%s of %s", who, id)
		}
	}
}

// LostBlobs lists the layers that are referenced and missing or incomplete.
func (s *Server) LostBlobs(n Named) (lost []string) {
	for d, who := range n.layers {
		hex := strings.TrimPrefix(string(d), "sha256:")
		b, err := os.ReadFile(filepath.Join(s.Data, "blobs", "sha256", hex[:2], hex))
		if err != nil || dormouse.DigestOf(b) != d {
			lost = append(lost, fmt.Sprintf("%s, which %s needs: %d bytes, %v", d, who, len(b), err))
		}
	}
	return lost
}

// StrayLayers lists unreferenced layers: packed, as directories, and noted as used.
func (s *Server) StrayLayers(n Named) (left []string, err error) {
	err = filepath.WalkDir(filepath.Join(s.Data, "blobs", "sha256"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || n.layers[dormouse.Digest("sha256:"+d.Name())] != "" {
			return gone(err)
		}
		b, err := os.ReadFile(path)
		if bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")) { // other blobs are not compressed
			left = append(left, path)
		}
		return gone(err)
	})
	if err != nil {
		return nil, err
	}
	used, notes, err := s.uses(n)
	if err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(s.snapshotDir("layers"))
	for _, d := range dirs {
		is, _ := os.Readlink(s.snapshotDir("names", d.Name())) // a directory without a name is not needed
		_, blob, _ := strings.Cut(is, " ")
		if n.layers[dormouse.Digest(blob)] == "" && !slices.Contains(used, d.Name()) {
			left = append(left, s.snapshotDir("layers", d.Name()))
		}
	}
	return append(left, notes...), gone(err)
}

// uses lists the directories that sessions use, and the notes of those that are no
// more.
func (s *Server) uses(n Named) (used, dead []string, err error) {
	notes, err := os.ReadDir(s.snapshotDir("uses"))
	for _, e := range notes {
		owner, _, _ := strings.Cut(e.Name(), "-")
		if !n.sessions[dormouse.SessionID(owner)] {
			dead = append(dead, s.snapshotDir("uses", e.Name()))
			continue
		}
		var note struct {
			Dirs []string `json:"dirs"`
		}
		if b, err := os.ReadFile(s.snapshotDir("uses", e.Name())); err == nil && json.Unmarshal(b, &note) == nil {
			used = append(used, note.Dirs...)
		}
	}
	return used, dead, gone(err)
}

// Age sets the times of all stored files back by two hours. No server may run.
func (s *Server) Age() error {
	old := unix.NsecToTimeval(time.Now().Add(-2 * time.Hour).UnixNano())
	for _, dir := range []string{filepath.Join(s.Data, "blobs", "sha256"), s.snapshotDir("names"), s.snapshotDir("runs")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return gone(err)
			}
			return unix.Lutimes(path, []unix.Timeval{old, old})
		})
		if err != nil {
			return fmt.Errorf("change times: %w", err)
		}
	}
	return nil
}

// LeaveUse leaves a note as a server does that dies before the session is there
// that it was for.
func (s *Server) LeaveUse(id dormouse.SessionID) error {
	notes, err := filepath.Glob(s.snapshotDir("uses", "*"))
	if err != nil || len(notes) == 0 {
		return errors.Join(errors.New("nobody uses any layers"), err)
	}
	b, err := os.ReadFile(notes[0])
	if err != nil {
		return err
	}
	return os.WriteFile(s.snapshotDir("uses", string(id)+"-1"), b, 0o600)
}

// snapshotDir is a path in the directory of snapshots.
func (s *Server) snapshotDir(path ...string) string {
	return filepath.Join(append([]string{s.Data, "snapshots"}, path...)...)
}

// gone drops errors which say that something does not exist any more.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
