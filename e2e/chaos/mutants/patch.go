package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// patch replaces a text in a source file of the module. The text must be there
// exactly once: a patch that does not fit breaks nothing, or something else.
type patch struct {
	file     string // from the root of the module
	old, new string
}

// apply returns the source with the text replaced.
func (p patch) apply(source string) (string, error) {
	switch n := strings.Count(source, p.old); {
	case p.old == "" || p.old == p.new:
		return "", fmt.Errorf("the patch of %s changes nothing", p.file)
	case n != 1:
		return "", fmt.Errorf("the patch of %s does not fit any more: its text is there %d times, not once:\n%s", p.file, n, p.old)
	}
	return strings.Replace(source, p.old, p.new, 1), nil
}

// sources returns the files that patches change, as they are once patched.
func sources(root string, patches []patch) (map[string]string, error) {
	changed := make(map[string]string)
	for _, p := range patches {
		text, ok := changed[p.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		var err error
		if changed[p.file], err = p.apply(text); err != nil {
			return nil, err
		}
	}
	if len(changed) == 0 {
		return nil, errors.New("there is no patch")
	}
	return changed, nil
}

// overlay writes the patched files to dir, for a build that reads them in place of
// those in the tree.
func overlay(root, dir string, patches []patch) (rig.Overlay, error) {
	changed, err := sources(root, patches)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	over := make(rig.Overlay)
	for file, text := range changed {
		path := filepath.Join(dir, strconv.Itoa(len(over))+"-"+filepath.Base(file))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
		over[filepath.Join(root, file)] = path
	}
	return over, nil
}
