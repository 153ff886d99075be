//go:build linux

package gvisor

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// What was put back is told in an event, however long its paths are.
func TestWhatWasPutBackIsListedWithinBounds(t *testing.T) {
	var r sandbox.Recovered
	long := strings.Repeat("a/", 100<<10)
	var all []layer.Restored
	for i := range 2 * sandbox.MaxLeft {
		path := long + strings.Repeat("b", i)
		all = append(all, layer.Restored{Path: path, Kept: path + ".found"})
	}
	add(&r, all)
	size := 0
	for _, f := range r.Files {
		size += len(f.Path) + len(f.Kept)
	}
	if most := 2 * sandbox.MaxLeft * sandbox.MaxShown; size > most || len(r.Files) != sandbox.MaxLeft {
		t.Errorf("%d files are listed in %d bytes, want %d in at most %d", len(r.Files), size, sandbox.MaxLeft, most)
	}
	if r.Count != 2*sandbox.MaxLeft {
		t.Errorf("%d files are counted, want %d", r.Count, 2*sandbox.MaxLeft)
	}
}
