//go:build linux

package volume

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// What was put back is told in an event, however long its paths are.
func TestWhatWasPutBackIsListedWithinBounds(t *testing.T) {
	var r sandbox.Recovered
	long := strings.Repeat("a/", 100<<10)
	var all []layer.Restored
	for i := range 2 * sandbox.MaxListed {
		path := long + strings.Repeat("b", i)
		all = append(all, layer.Restored{Path: path, SavedAs: path + ".found"})
	}
	add(&r, all)
	size := 0
	for _, f := range r.Files {
		size += len(f.Path) + len(f.SavedAs)
	}
	if most := 2 * sandbox.MaxListed * sandbox.MaxPathLen; size > most || len(r.Files) != sandbox.MaxListed {
		t.Errorf("%d files are listed in %d bytes, want %d in at most %d", len(r.Files), size, sandbox.MaxListed, most)
	}
	if r.Count != 2*sandbox.MaxListed {
		t.Errorf("%d files are counted, want %d", r.Count, 2*sandbox.MaxListed)
	}
}

// Files whose long paths begin and end alike are told apart, and what happens to one is
// not told of the other.
func TestLongPathsThatWerePutBackAreToldApart(t *testing.T) {
	var r sandbox.Recovered
	long := func(in string) string {
		return strings.Repeat("ä/", sandbox.MaxPathLen) + in + strings.Repeat("/ö", sandbox.MaxPathLen)
	}
	one, two := long("one"), long("two")
	add(&r, []layer.Restored{{Path: one, SavedAs: one + ".found"}, {Path: two, SavedAs: two + ".found"}})
	if r.Count != 2 || len(r.Files) != 2 || r.Files[0].Path == r.Files[1].Path || r.Files[0].SavedAs == r.Files[1].SavedAs {
		t.Fatalf("told is %+v", r)
	}
	for _, f := range r.Files {
		if len(f.Path) > sandbox.MaxPathLen || len(f.SavedAs) > sandbox.MaxPathLen || !utf8.ValidString(f.Path+f.SavedAs) {
			t.Errorf("listed is %q, kept at %q", f.Path, f.SavedAs)
		}
	}
	if !strings.HasSuffix(r.Files[0].SavedAs, ".found") {
		t.Errorf("the end of %q is not shown", r.Files[0].SavedAs)
	}
	v := Volume{Dir: t.TempDir()}
	must(t, v.noteMoved(&r, two, "outside"))
	if r.Files[0].Outside || !r.Files[1].Outside {
		t.Errorf("moved outside is %+v", r.Files)
	}
}
