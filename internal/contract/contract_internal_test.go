package contract

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFieldsAreNamedAsJSONNamesThem(t *testing.T) {
	type base struct {
		ID string `json:"id"`
	}
	type node struct {
		base
		Hidden string `json:"-"`
		inside int
		At     time.Time         `json:"at,omitzero"`
		Labels map[string]string `json:"labels"`
		Next   []*node           `json:"next,omitempty"`
		Plain  uint8
	}
	_ = node{inside: 1}.inside
	got := Fields(reflect.TypeFor[node]())
	want := []string{"object", "id string", "at? time", "labels{} string", "next?[] as above", "Plain uint"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// recorder records the errors of a check.
type recorder struct {
	testing.TB
	reported []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(_ string, args ...any) { r.reported = append(r.reported, args[1].(string)) }

func TestAPromiseIsOnlyRemovedByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.txt")
	check := func(updating bool, want []string, lines ...string) {
		t.Helper()
		was := *update
		*update = updating
		defer func() { *update = was }()
		r := &recorder{TB: t}
		File{Path: path, Grows: Wider}.Check(r, lines)
		if !slices.Equal(r.reported, want) {
			t.Errorf("%q: reported %q, want %q", lines, r.reported, want)
		}
	}
	check(true, nil, "{a:int}", "{a:int}", "{b:int}")
	check(false, nil, "{b:int}", "{a:int}", "{a:int}")
	check(false, []string{"{a:int}"}, "{a:int}", "{b:int}")                       // one of two is gone
	check(false, []string{"{c:int}"}, "{a:int}", "{a:int}", "{b:int}", "{c:int}") // new
	check(true, []string{"{b:int}"}, "{a:int}", "{a:int}")                        // is not forgotten by -update
	check(true, nil, "{a:int}", "{a:int}", "{b:int c:int}")                       // has grown
	check(true, []string{"{b:int c:int}"}, "{a:int}", "{a:int}", "{b:int d:int}") // renamed is no growth
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), "{b:int c:int}\n") {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
