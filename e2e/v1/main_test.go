package v1_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
)

var (
	// built is the binary under test.
	built rig.Binary
	// seen is what all tests saw together.
	seen = schema.NewReport()
	// stores are of the kind that DORMOUSE_E2E_STORE names.
	stores *rig.Stores
	// scratch is a directory for as long as the tests run.
	scratch string
)

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen { // most of what these tests do is wait
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := rig.TempDir("dormouse-v1-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	scratch = dir
	defer func() { _ = os.RemoveAll(dir) }()
	if path := os.Getenv("DORMOUSE_BIN"); path != "" {
		built, err = rig.Beside(path)
	} else {
		built, err = rig.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if stores, err = rig.NewStores(context.Background(), os.Getenv("DORMOUSE_E2E_STORE"), time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = stores.Close() }()
	code := m.Run()
	// Programs that run more than these tests add up the reports of all of
	// them.
	if path := os.Getenv("DORMOUSE_V1_REPORT"); path != "" {
		if err := seen.Save(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Fprintln(os.Stderr, seen)
	return code
}

// withPoints is the binary with its crash points.
var withPoints = sync.OnceValues(func() (rig.Binary, error) {
	return rig.Build(context.Background(), filepath.Join(scratch, "crash"), "crash")
})

// sources looks at every source file, once, so that an earlier result does not
// hold for a binary that was built of others.
var sources = sync.OnceFunc(func() {
	_ = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		_, _ = os.Stat(path) // what is gone by now is no source
		return nil
	})
})

// patience bounds a test; most take seconds.
const patience = 4 * time.Minute

// open starts a site that is judged when the test ends.
func open(t *testing.T, o site.Options) (*site.Site, context.Context) {
	t.Helper()
	sources()
	if o.Binary == (rig.Binary{}) {
		o.Binary = built
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("it took too long"))
	t.Cleanup(cancel)
	st, drop, err := stores.Make(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	o.Store = st
	s, err := site.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		judge(ctx, t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, ctx
}

// judge holds all that a site did against what is promised.
func judge(ctx context.Context, t *testing.T, s *site.Site) {
	t.Helper()
	wrong, looked, err := s.Judge(ctx)
	if err != nil {
		t.Errorf("judge: %v", err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	for _, v := range s.Report.Violations() {
		t.Error(v)
	}
	for _, c := range s.Crashes() {
		t.Error(c)
	}
	if t.Failed() {
		t.Logf("the server said:\n%s", s.Tail())
	}
	t.Logf("%d logs and streams; %s", looked, s.Report)
	seen.Add(s.Report)
}
