package packages

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

const (
	manifestFile = "stock.json"
	// currentFile holds the id of the layer of its key that new sessions get.
	currentFile = "current"
	// builderFile holds the name of the sandbox that a layer is being made in.
	builderFile = "box"

	// freshFor is how long new sessions get a layer before the packages are installed anew.
	freshFor = 7 * 24 * time.Hour
	// retryAfter is how long packages that could not be installed stay missing.
	retryAfter = time.Hour
	// unusedFor is how long a layer stays that no session uses.
	unusedFor = 24 * time.Hour
)

// Layer is installed packages: what their installation changed of a root file system. It is
// made once, over one root, and is read-only from then on, for every session with the same
// packages. How its files are stored is the driver's; Manifest says that they are complete.
type Layer struct {
	Name string // KEY/ID
	Dir  string
}

// Manifest is what is known of a complete layer.
type Manifest struct {
	Packages dormouse.Packages `json:"packages"`
	// Missing says what could not be installed, and why.
	Missing string `json:"missing,omitempty"`
}

// Key names packages over one root file system, which base identifies.
func Key(base string, p dormouse.Packages) (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("name packages: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "1\n%s\n%s\n", base, raw))
	const enough = 32
	return hex.EncodeToString(sum[:])[:enough], nil
}

// Manifest returns nil if the layer is not complete.
func (l Layer) Manifest() (*Manifest, error) {
	raw, err := os.ReadFile(l.manifest())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it is not complete
	}
	if err != nil {
		return nil, fmt.Errorf("read packages: %w", err)
	}
	m := new(Manifest)
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read packages: %w", err)
	}
	return m, nil
}

func (l Layer) manifest() string { return filepath.Join(l.Dir, manifestFile) }

// Begin creates the directory of a layer, and notes the sandbox that it is made in.
func (l Layer) Begin(builder string) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.Dir, builderFile), []byte(builder), 0o600)
}

// Builder is the sandbox that the layer is or was made in, empty if that is unknown.
func (l Layer) Builder() string {
	id, err := os.ReadFile(filepath.Join(l.Dir, builderFile))
	if err != nil {
		return ""
	}
	return string(id)
}

// Seal notes that a layer is complete. Its files must be durable.
func (l Layer) Seal(m Manifest) error {
	raw, err := json.Marshal(m)
	if err == nil {
		err = atomicfile.Write(l.manifest(), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep packages: %w", err)
	}
	return nil
}

// Retire removes the manifest, so that no session begins to use the layer.
func (l Layer) Retire() error { return os.Remove(l.manifest()) }

// Store has all layers, as DIR/KEY/ID.
type Store struct{ Dir string }

// KeyDir is where the layers of a key are. It is locked while one is made or removed.
func (s Store) KeyDir(key string) string { return filepath.Join(s.Dir, key) }

// Layer finds a layer by its name, whether or not it exists.
func (s Store) Layer(name string) (Layer, error) {
	key, id, ok := strings.Cut(name, "/")
	if !ok || key == "" || id == "" || strings.ContainsAny(name, ".\x00") || strings.Contains(id, "/") {
		return Layer{}, fmt.Errorf("%.80q names no packages: %w", name, dormouse.ErrInvalid)
	}
	return Layer{Name: name, Dir: filepath.Join(s.Dir, key, id)}, nil
}

// New names a layer that does not exist yet.
func (s Store) New(key string) (Layer, error) {
	const enough = 16
	return s.Layer(key + "/" + strings.ToLower(rand.Text()[:enough]))
}

// Current is the layer of a key that new sessions get, nil if there is none that is fresh.
func (s Store) Current(key string) *Layer {
	note := filepath.Join(s.KeyDir(key), currentFile)
	id, err := os.ReadFile(note)
	if err != nil {
		return nil
	}
	at, err := os.Stat(note)
	if err != nil {
		return nil
	}
	l, err := s.Layer(key + "/" + string(id))
	if err != nil || s.Use(l.Name) == nil || time.Since(at.ModTime()) >= freshFor {
		return nil
	}
	return &l
}

// SetCurrent has new sessions get a layer.
func (s Store) SetCurrent(l Layer) error {
	return atomicfile.Write(filepath.Join(filepath.Dir(l.Dir), currentFile), []byte(filepath.Base(l.Dir)), 0o600)
}

// Use returns the manifest of a layer and keeps the layer from being removed for some time.
// It returns nil if there is no such layer, or if packages are missing from it and it is
// time to try again.
func (s Store) Use(name string) *Manifest {
	l, err := s.Layer(name)
	if err != nil {
		return nil
	}
	at, err := os.Stat(l.manifest())
	if err != nil {
		return nil
	}
	m, err := l.Manifest()
	if err != nil || m == nil {
		return nil
	}
	if m.Missing != "" { // the manifest is as old as the attempt
		if time.Since(at.ModTime()) > retryAfter {
			return nil
		}
		return m
	}
	now := time.Now()
	if os.Chtimes(l.manifest(), now, now) != nil {
		return nil // it is being removed
	}
	return m
}

// Keys lists the keys that have layers.
func (s Store) Keys() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		keys = append(keys, e.Name())
	}
	return keys, err
}

// layers lists the layers of a key, complete or not.
func (s Store) layers(key string) ([]Layer, error) {
	entries, err := os.ReadDir(s.KeyDir(key))
	if err != nil {
		return nil, err
	}
	var all []Layer
	for _, e := range entries {
		if l, err := s.Layer(key + "/" + e.Name()); err == nil && e.IsDir() {
			all = append(all, l)
		}
	}
	return all, nil
}

// Unfinished lists the layers of a key that are not complete. While the key is locked, none
// of them is being made any more.
func (s Store) Unfinished(key string) ([]Layer, error) {
	all, err := s.layers(key)
	var left []Layer
	for _, l := range all {
		if m, err := l.Manifest(); err == nil && m == nil {
			left = append(left, l)
		}
	}
	return left, err
}

// Unused lists the complete layers of a key that are in none of used, and have not been for
// a day.
func (s Store) Unused(key string, used map[string]bool) ([]Layer, error) {
	all, err := s.layers(key)
	var left []Layer
	for _, l := range all {
		if at, err := os.Stat(l.manifest()); err == nil && !used[l.Name] && time.Since(at.ModTime()) >= unusedFor {
			left = append(left, l)
		}
	}
	return left, err
}
