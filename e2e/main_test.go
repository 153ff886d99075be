// Package e2e tests the real binary from outside: the scenarios, one test each,
// and what a killed process and a lost disk cache must not change.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

var (
	// built is the binary under test.
	built rig.Binary
	// scratch is a directory for as long as the tests run.
	scratch string
)

func TestMain(m *testing.M) {
	flag.Parse()
	atOnce := true
	flag.Visit(func(f *flag.Flag) { atOnce = atOnce && f.Name != "test.parallel" })
	if atOnce { // most of what these tests do is wait
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = rig.TempDir("dormouse-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if built, err = choose(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if database != nil {
			_ = database.Stop()
		}
	}()
	return m.Run()
}

// choose takes the binary that DORMOUSE_BIN names, or one that is built in dir.
func choose(dir string) (rig.Binary, error) {
	path := os.Getenv("DORMOUSE_BIN")
	if path == "" {
		return rig.Build(context.Background(), dir)
	}
	named, err := rig.Beside(path)
	if err != nil || named.Runner != "" {
		return named, err
	}
	fresh, err := rig.Build(context.Background(), dir)
	named.Runner = fresh.Runner // some tests wrap it
	return named, err
}

// withPoints is the binary with its crash points and a clock that can be set.
var withPoints = sync.OnceValues(func() (rig.Binary, error) {
	return rig.Build(context.Background(), filepath.Join(scratch, "crash"), "crash")
})

func crashing(t *testing.T) rig.Binary {
	t.Helper()
	b, err := withPoints()
	must(t, err)
	return b
}

// sources looks at every source file, once. Whether an earlier result still
// holds is decided by what the tests themselves looked at, and the binary is
// built before they begin.
var sources = sync.OnceFunc(func() {
	_ = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		_, _ = os.Stat(path) // what is gone by now is no source
		return nil
	})
})
