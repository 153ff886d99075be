//go:build linux

package inside_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// sees reads changes until each of want has come, in any order, and returns all
// that came.
func sees(t testing.TB, c *runner.Conn, want ...runner.Change) []runner.Change {
	t.Helper()
	missing := make(map[runner.Change]bool)
	for _, w := range want {
		missing[w] = true
	}
	var all []runner.Change
	for change, err := range c.Changes() {
		if err != nil {
			t.Fatalf("%v: missing %v after %v", err, missing, all)
		}
		all = append(all, change)
		if delete(missing, change); len(missing) == 0 {
			return all
		}
	}
	t.Fatalf("missing %v after %v", missing, all)
	return nil
}

func TestWatchTellsWhatChanges(t *testing.T) {
	r, l := open(t)
	if err := os.MkdirAll(filepath.Join(r.workspace, "dir/below"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := stream(t, l, watching("dir"))
	do(t, l, exec("cd dir; echo x >file; chmod 600 file; mv file other; rm other; touch below/unseen; mkdir new; touch new/unseen; touch last"))
	all := sees(t, c,
		runner.Change{Path: "file", Op: runner.Created},
		runner.Change{Path: "file", Op: runner.Written},
		runner.Change{Path: "file", Op: runner.Modified},
		runner.Change{Path: "file", Op: runner.Removed},
		runner.Change{Path: "other", Op: runner.Created},
		runner.Change{Path: "other", Op: runner.Removed},
		runner.Change{Path: "new", Op: runner.Created},
		runner.Change{Path: "last", Op: runner.Created},
	)
	for _, change := range all {
		if filepath.Base(change.Path) == "unseen" {
			t.Errorf("seen: %v", change)
		}
	}
}

func TestWatchFollowsDirectories(t *testing.T) {
	r, l := open(t)
	if err := os.MkdirAll(filepath.Join(r.workspace, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := stream(t, l, runner.Stream{Watch: &runner.Watch{Path: ".", Recursive: true}})
	do(t, l, exec("echo x >a/b/c/deep; mkdir -p new/er/est; echo x >new/er/est/file"))
	sees(t, c,
		runner.Change{Path: "a/b/c/deep", Op: runner.Written},
		runner.Change{Path: "new/er/est", Op: runner.Created},
		runner.Change{Path: "new/er/est/file", Op: runner.Created},
	)
	do(t, l, exec("mv new moved"))
	sees(t, c, runner.Change{Path: "new", Op: runner.Removed}, runner.Change{Path: "moved/er/est/file", Op: runner.Created})
	do(t, l, exec("echo y >>moved/er/est/file; rm -r a; touch last"))
	sees(t, c,
		runner.Change{Path: "moved/er/est/file", Op: runner.Written},
		runner.Change{Path: "a/b/c/deep", Op: runner.Removed},
		runner.Change{Path: "a", Op: runner.Removed},
		runner.Change{Path: "last", Op: runner.Created},
	)
}

func TestWatchOverAFileEndsWithIt(t *testing.T) {
	for _, remove := range []string{"rm file", "mv file other"} {
		t.Run(remove, func(t *testing.T) {
			r, l := open(t)
			writeFile(t, filepath.Join(r.workspace, "file"), "")
			c := stream(t, l, watching("file"))
			do(t, l, exec("echo x >>file"))
			sees(t, c, runner.Change{Path: ".", Op: runner.Written})
			do(t, l, exec(remove))
			sees(t, c, runner.Change{Path: ".", Op: runner.Removed})
			ends(t, c)
		})
	}
}

func TestWatchOverNothingIsRefused(t *testing.T) {
	_, l := open(t)
	if _, err := l.Open(deadline(t), watching("nowhere")); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("opened: %v", err)
	}
}

func TestWatchThatMissesSomethingSaysSo(t *testing.T) {
	r, l := open(t)
	for i := range 9000 { // more than a watch is told of at once
		writeFile(t, filepath.Join(r.workspace, fmt.Sprint(i)), "")
	}
	outside := filepath.Join(r.dir, "outside")
	if err := os.Rename(r.workspace, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	c := stream(t, l, runner.Stream{Watch: &runner.Watch{Path: ".", Recursive: true}})
	if err := os.Rename(outside, filepath.Join(r.workspace, "in")); err != nil {
		t.Fatal(err)
	}
	all := sees(t, c, runner.Change{Overflow: true})
	if len(all) > 8193 || all[0] != (runner.Change{Path: "in", Op: runner.Created}) {
		t.Errorf("%d changes, the first of which is %v", len(all), all[0])
	}
	do(t, l, exec("touch last"))
	sees(t, c, runner.Change{Path: "last", Op: runner.Created})
}
