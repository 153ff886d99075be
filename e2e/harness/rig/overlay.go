package rig

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
)

// Overlay has the compiler read other files in place of sources: by the path of a
// source, the path of what is read for it. The source tree is left as it is.
type Overlay map[string]string

// Write puts the overlay where "go build -overlay" and "go test -overlay" find it.
func (o Overlay) Write(path string) error {
	text, err := json.Marshal(map[string]any{"Replace": o})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// BuildOver compiles the server and the runner over other sources with the given
// tags into dir. The runner is put inside the server by an overlay as well.
func BuildOver(ctx context.Context, dir string, over Overlay, tags ...string) (Binary, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return Binary{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Binary{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binary{}, err
	}
	b := Binary{Server: filepath.Join(dir, "dormouse"), Runner: filepath.Join(dir, "dormouse-runner")}
	inside := maps.Clone(over)
	if inside == nil {
		inside = make(Overlay)
	}
	inside[filepath.Join(root, "cmd", "dormouse", "embedded", "dormouse-runner")] = b.Runner
	for _, part := range []struct {
		out, what string
		over      Overlay
	}{{b.Runner, "./cmd/dormouse-runner", over}, {b.Server, "./cmd/dormouse", inside}} {
		overlay := part.out + ".overlay.json"
		if err := part.over.Write(overlay); err != nil {
			return Binary{}, err
		}
		if err := compile(ctx, root, part.out, part.what, tags, "-overlay", overlay); err != nil {
			return Binary{}, err
		}
	}
	return b, nil
}
