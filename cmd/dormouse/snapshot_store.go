//go:build !windows

package main

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot"
)

const (
	snapshotsDir = "snapshots"
	refsKeyFile  = "refs.key"
)

// openSnapshots opens the store of snapshots. Layers depend on features of Linux, so
// other systems have no snapshots.
func (s *server) openSnapshots() (*snapshot.Store, error) {
	if runtime.GOOS != "linux" {
		return nil, nil //nolint:nilnil // sessions know what to say
	}
	return snapshot.Open(snapshot.Options{Dir: filepath.Join(s.config.Data, snapshotsDir), Blobs: s.blobs, Log: s.log})
}

func (s *server) closeSnapshots() error {
	if s.snapshots == nil {
		return nil
	}
	return s.snapshots.Close()
}

// configureSnapshots lets sessions take snapshots. Servers that share a store share a
// key, so that a ref is valid with each of them.
func (s *server) configureSnapshots(c *session.Config, shared []byte) error {
	key, err := refsKey(s.config.Data, shared)
	if err != nil {
		return err
	}
	c.Snapshots, c.Refs, c.CrossSession = s.snapshots, key, s.config.CrossSession
	c.SnapshotPolicy = dormouse.SnapshotPolicy(s.config.Snapshots)
	c.Retention = dormouse.Retention{MaxCount: s.config.KeepCount, MaxAge: s.config.KeepAge}
	return nil
}

// refsKey is the key that authenticates refs of snapshots. It is as old as the store.
func refsKey(data string, shared []byte) (snapshot.Key, error) {
	if shared != nil {
		return sha256.Sum256(append([]byte("refs of snapshots\x00"), shared...)), nil
	}
	name := filepath.Join(data, refsKeyFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		raw = make([]byte, len(snapshot.Key{}))
		_, _ = rand.Read(raw) // never fails: it ends the process instead
		err = atomicfile.Write(name, raw, 0o600)
	}
	if err == nil && len(raw) != len(snapshot.Key{}) {
		err = fmt.Errorf("%s has %d bytes; it must have %d", name, len(raw), len(snapshot.Key{}))
	}
	if err != nil {
		return snapshot.Key{}, fmt.Errorf("key of snapshots: %w", err)
	}
	return snapshot.Key(raw), nil
}
