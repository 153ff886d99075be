package mutants

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// notice is the test that must detect a mutant.
type notice interface {
	// build compiles what is looked at, over the patched sources, into dir.
	build(ctx context.Context, w *workshop, dir string, over rig.Overlay) (subject, error)
	// good is what build returns for the sources as they are.
	good(ctx context.Context, w *workshop) (subject, error)
	// look returns what is wrong with a build; nothing is the right answer for the
	// one that is not broken.
	look(ctx context.Context, w *workshop, s subject) (string, error)
}

// subject is a build that is looked at.
type subject struct {
	server rig.Binary // with its crash points; none if only tests are looked at
	tests  string     // a test binary; none if there is none
}

// workshop is where all mutants are built. What is not broken is built once.
type workshop struct {
	root, dir string
	server    rig.Binary // the one that is not broken

	mu    sync.Mutex
	tests map[string]string // guarded by mu; test binaries that are not broken, by package
}

// goodTests returns the tests of a package that is not broken.
func (w *workshop) goodTests(ctx context.Context, g goTest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if path, ok := w.tests[g.pkg]; ok {
		return path, nil
	}
	path := filepath.Join(w.dir, fmt.Sprintf("good-%d.test", len(w.tests)))
	if err := g.compile(ctx, w.root, path, nil); err != nil {
		return "", err
	}
	w.tests[g.pkg] = path
	return path, nil
}

// inPackage notices by a test that has the broken code inside.
type inPackage struct{ goTest }

func (n inPackage) build(ctx context.Context, w *workshop, dir string, over rig.Overlay) (subject, error) {
	s := subject{tests: filepath.Join(dir, "broken.test")}
	return s, n.compile(ctx, w.root, s.tests, over)
}

func (n inPackage) good(ctx context.Context, w *workshop) (subject, error) {
	tests, err := w.goodTests(ctx, n.goTest)
	return subject{tests: tests}, err
}

func (n inPackage) look(ctx context.Context, w *workshop, s subject) (string, error) {
	return n.run(ctx, w.root, s.tests)
}

// fromOutside notices by a test of package e2e, which holds the real binary from
// outside: the tests are as they are, and the server is broken.
type fromOutside struct{ name string }

func (n fromOutside) test() goTest { return goTest{pkg: "e2e", name: n.name} }

func (n fromOutside) build(ctx context.Context, w *workshop, dir string, over rig.Overlay) (s subject, err error) {
	if s.tests, err = w.goodTests(ctx, n.test()); err == nil {
		s.server, err = rig.BuildOver(ctx, dir, over, "crash")
	}
	return s, err
}

func (n fromOutside) good(ctx context.Context, w *workshop) (subject, error) {
	tests, err := w.goodTests(ctx, n.test())
	return subject{server: w.server, tests: tests}, err
}

func (n fromOutside) look(ctx context.Context, w *workshop, s subject) (string, error) {
	return n.test().run(ctx, w.root, s.tests, "DORMOUSE_BIN="+s.server.Server)
}
