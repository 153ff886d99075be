//go:build unix

package vault

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/internal/dirlock"
)

// KeyFile keeps keys in a file that its owner alone can read. Servers of one machine
// may share it: it is read again for a key that is not known yet, and written by one
// of them at a time.
type KeyFile struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	keys map[string]Key // those read so far; guarded by mu
}

// keptKey is a key in the file.
type keptKey struct {
	dormouse.VaultKey
	Key string `json:"key"`
}

// keptKeys is what the file holds, the oldest first.
type keptKeys struct {
	Keys []keptKey `json:"keys"`
}

// others are the permissions of everybody but the owner.
const others fs.FileMode = 0o077

// NewKeyFile returns the keys that are in a file, which Add makes if it is not there.
// A nil clock is the machine's.
func NewKeyFile(path string, clock func() time.Time) *KeyFile {
	if clock == nil {
		clock = time.Now
	}
	return &KeyFile{path: path, now: clock}
}

// String is where the file is.
func (f *KeyFile) String() string { return f.path }

// Newest implements Keys.
func (f *KeyFile) Newest(context.Context) (Key, error) {
	kept, err := f.read()
	if err != nil {
		return Key{}, err
	}
	if len(kept.Keys) == 0 {
		return Key{}, missing(fmt.Errorf("there is no vault key in %s", f.path))
	}
	return f.known(kept.Keys[len(kept.Keys)-1].ID), nil
}

// Key implements Keys.
func (f *KeyFile) Key(_ context.Context, id string) (Key, error) {
	if k := f.known(id); k.aead != nil {
		return k, nil
	}
	if _, err := f.read(); err != nil {
		return Key{}, err
	}
	if k := f.known(id); k.aead != nil {
		return k, nil
	}
	return Key{}, missing(fmt.Errorf("the vault key %s is not in %s", id, f.path))
}

func (f *KeyFile) known(id string) Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[id]
}

// List implements Ring.
func (f *KeyFile) List(context.Context) ([]dormouse.VaultKey, error) {
	kept, err := f.read()
	var all []dormouse.VaultKey
	for _, k := range kept.Keys {
		all = append(all, k.VaultKey)
	}
	return all, err
}

// Add implements Ring.
func (f *KeyFile) Add(ctx context.Context) (dormouse.VaultKey, error) {
	bits := randomKey()
	made := dormouse.VaultKey{ID: NewKey(bits).ID(), Created: f.now().UTC().Truncate(time.Second)}
	return made, f.change(ctx, func(kept keptKeys) keptKeys {
		kept.Keys = append(kept.Keys, keptKey{made, base64.StdEncoding.EncodeToString(bits[:])})
		return kept
	})
}

// Remove implements Ring.
func (f *KeyFile) Remove(ctx context.Context, id string) error {
	return f.change(ctx, func(kept keptKeys) keptKeys {
		kept.Keys = slices.DeleteFunc(kept.Keys, func(k keptKey) bool { return k.ID == id })
		return kept
	})
}

// change writes what change makes of the file, while nobody else does.
func (f *KeyFile) change(ctx context.Context, change func(keptKeys) keptKeys) error {
	unlock, err := dirlock.Lock(ctx, filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("change the vault keys: %w", err)
	}
	defer unlock()
	was, err := f.read()
	if err != nil {
		return err
	}
	n := len(was.Keys)
	kept := change(was)
	if len(kept.Keys) == n {
		return nil
	}
	if err := atomicfile.Write(f.path, append(dormouse.Encode(kept), '\n'), 0o600); err != nil {
		return missing(fmt.Errorf("keep the vault keys: %w; name a file that can be written with --vault-keys", err))
	}
	_, err = f.read()
	return err
}

// read reads the file, in which no keys are if it is not there.
func (f *KeyFile) read() (keptKeys, error) {
	kept, err := f.load()
	if err != nil {
		return keptKeys{}, missing(err)
	}
	keys := make(map[string]Key, len(kept.Keys))
	for _, k := range kept.Keys {
		bits, err := base64.StdEncoding.Strict().DecodeString(k.Key)
		if err != nil || len(bits) != keySize {
			return keptKeys{}, f.malformed("key " + k.ID + " has not 32 bytes in base64")
		}
		key := NewKey([keySize]byte(bits))
		if key.id != k.ID || keys[k.ID].aead != nil {
			return keptKeys{}, f.malformed("key " + k.ID + " is not the one of that id, or is there twice")
		}
		keys[k.ID] = key
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = keys
	return kept, nil
}

func (f *KeyFile) malformed(what string) error {
	return missing(fmt.Errorf("%s holds no vault keys: %s; put it back from where you keep a copy", f.path, what))
}

// load reads what is in the file, unless somebody else can.
func (f *KeyFile) load() (kept keptKeys, err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err != nil {
		return kept, fmt.Errorf("read the vault keys: %w", err)
	}
	defer func() { _ = file.Close() }()
	at, err := file.Stat()
	if err != nil {
		return kept, fmt.Errorf("read the vault keys: %w", err)
	}
	if !at.Mode().IsRegular() {
		return kept, fmt.Errorf("%s is no file, so it holds no vault keys", f.path)
	}
	if at.Mode()&others != 0 {
		return kept, fmt.Errorf("others can read the vault keys in %s (mode %04o); if nobody did, close it with: chmod 0600 %s", f.path, at.Mode().Perm(), f.path)
	}
	if owner, ok := at.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return kept, fmt.Errorf("%s belongs to user %d, who knows the vault keys in it; name a file of the server's own with --vault-keys", f.path, owner.Uid)
	}
	const most = 1 << 20
	if at.Size() > most {
		return kept, fmt.Errorf("%s has %d bytes, so it holds no vault keys", f.path, at.Size())
	}
	b, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return kept, fmt.Errorf("read the vault keys: %w", err)
	}
	if closedjson.Decode(b, &kept) != nil { // its error could quote a key
		return keptKeys{}, fmt.Errorf("%s is not written as vault keys are; put it back from where you keep a copy", f.path)
	}
	return kept, nil
}
