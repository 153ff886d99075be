package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const moduleDir = "../../.."

// A change that moves code which a patch is made for must update the patch.
func TestEveryPatchFits(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range all() {
		t.Run(m.name, func(t *testing.T) {
			if names[m.name] || m.rule == "" || m.notice == nil {
				t.Errorf("the mutant needs a name of its own, a rule and somebody who notices")
			}
			names[m.name] = true
			changed, err := sources(moduleDir, m.patches)
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range changed {
				if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
					t.Errorf("once patched, it is no source: %v", err)
				}
			}
		})
	}
}

func TestEveryTestThatMustNoticeIsThere(t *testing.T) {
	for _, m := range all() {
		var test goTest
		switch n := m.notice.(type) {
		case inPackage:
			test = n.goTest
		case fromOutside:
			test = n.test()
		case inCases:
			for _, c := range n.cases {
				if c.Kind.Name == "" {
					t.Errorf("%s: there is no such kind of work", m.name)
				}
			}
			continue
		}
		name, _, _ := strings.Cut(test.name, "/")
		files, err := filepath.Glob(filepath.Join(moduleDir, test.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			there = there || regexp.MustCompile(`(?m)^func `+name+`\(t \*testing\.T\)`).Match(b)
		}
		if !there {
			t.Errorf("%s: there is no test %s", m.name, test)
		}
	}
}

// Nothing in what is shipped may say how to break it.
func TestNoSourceHasAMutantInside(t *testing.T) {
	err := filepath.WalkDir(moduleDir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || path == filepath.Join(moduleDir, "e2e")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && regexp.MustCompile(`(?m)^//go:build .*mutant`).Match(b) || strings.Contains(d.Name(), "_mutant") {
			t.Errorf("%s is a mutant", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryMutantIsInTheDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(moduleDir, "docs", "crash.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all() {
		if !strings.Contains(string(b), "\n| "+m.name+" | ") {
			t.Errorf("docs/crash.md does not say what %s breaks", m.name)
		}
	}
}
