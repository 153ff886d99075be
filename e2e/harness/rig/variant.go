package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit is how one file of the source tree is different in a variant: New stands there
// instead of Old, or is all of the file if Old is empty.
type Edit struct{ Path, Old, New string }

// BuildVariant compiles a server into dir that differs from this source tree by edits,
// with the runner of b inside if it has one of its own. The tree is left as it is.
func BuildVariant(ctx context.Context, dir string, b Binary, edits ...Edit) (Binary, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return Binary{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binary{}, err
	}
	texts := make(map[string]string)
	for _, e := range edits {
		path := filepath.Join(root, e.Path)
		if _, begun := texts[path]; !begun && e.Old != "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return Binary{}, err
			}
			texts[path] = string(text)
		}
		if e.Old != "" && strings.Count(texts[path], e.Old) != 1 {
			return Binary{}, fmt.Errorf("%s does not have %q once", e.Path, e.Old)
		}
		if e.Old == "" {
			texts[path] = e.New
		} else {
			texts[path] = strings.Replace(texts[path], e.Old, e.New, 1)
		}
	}
	replace := make(map[string]string)
	if b.Runner != "" {
		replace[filepath.Join(root, "cmd", "dormouse", "embedded", "dormouse-runner")] = b.Runner
	}
	for path, text := range texts {
		instead := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
			return Binary{}, err
		}
		replace[path] = instead
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return Binary{}, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return Binary{}, err
	}
	b.Server = filepath.Join(dir, "dormouse")
	return b, compile(ctx, root, b.Server, "./cmd/dormouse", nil, "-overlay", overlay)
}
