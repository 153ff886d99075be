//go:build linux

package snapshot_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A layer that has nothing but the root that is there adds nothing.
func TestALayerOfTheSameRootAddsNothing(t *testing.T) {
	h := open(t)
	base := h.keep("a", "1")
	at := h.use(1, base)[0]
	stage := func(change func(dir string)) *snapshot.Stage {
		g, err := h.Stage(t.Context())
		must(t, err)
		t.Cleanup(func() { must(t, g.Close()) })
		must(t, layer.CopyRootMetadata(t.Context(), at, g.Dir))
		change(g.Dir)
		return g
	}
	nothing := func(string) {}
	for name, c := range map[string]struct {
		stage *snapshot.Stage
		below []dormouse.Layer
		want  bool
	}{
		"the same root":     {stage(nothing), []dormouse.Layer{base}, false},
		"over nothing":      {stage(nothing), nil, true},
		"over what is gone": {stage(nothing), []dormouse.Layer{{DiffID: dormouse.DigestOf([]byte("x"))}}, true},
		"another root":      {stage(func(dir string) { must(t, os.Chmod(dir, 0o711)) }), []dormouse.Layer{base}, true},
		"another time":      {stage(func(dir string) { chtimes(t, dir, zero.Add(time.Hour)) }), []dormouse.Layer{base}, true},
		"a file":            {stage(func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600)) }), []dormouse.Layer{base}, true},
	} {
		if got, err := h.Adds(t.Context(), c.stage, c.below); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
