package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestOnlyTheNamedTestCanNotice(t *testing.T) {
	test := goTest{"session", "TestA/of b"}
	for name, c := range map[string]struct {
		out       string
		ok        bool
		want, err string
	}{
		"it passed":        {"=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/of_b (0.00s)\nPASS\n", true, "", ""},
		"it failed":        {"    a_test.go:3: the wrong thing\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/of_b (0.00s)\nFAIL\n", false, "TestA/of_b: the wrong thing", ""},
		"it panicked":      {"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/of_b (0.00s)\npanic: oh [recovered]\n", false, "TestA/of_b: it failed", ""},
		"another failed":   {"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/of_c (0.00s)\nFAIL\n", false, "", "neither passed nor failed"},
		"it was skipped":   {"--- SKIP: TestA (0.00s)\n    --- SKIP: TestA/of_b (0.00s)\nPASS\n", true, "", "skipped"},
		"it was not there": {"testing: warning: no tests to run\nPASS\n", true, "", "neither passed nor failed"},
		"it hung":          {"panic: test timed out after 5m0s\n", false, "", "neither passed nor failed"},
		"what follows it":  {"--- PASS: TestA (0.00s)\n    --- PASS: TestA/of_b (0.00s)\nPASS\ngoleak: leaked\n", false, "", "neither passed nor failed"},
	} {
		t.Run(name, func(t *testing.T) {
			test := test
			test.name = strings.ReplaceAll(test.name, " ", "_")
			got, err := test.verdict(c.out, c.ok)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("verdict is %q, %v", got, err)
			}
		})
	}
}

func TestSourceThatDoesNotCompileIsNotNoticed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.com/m\n\ngo 1.26\n",
		"p/p.go":      "package p\n\nfunc One() int { return 1 }\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Errorf(\"one is %d\", One())\n\t}\n}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	test := goTest{"p", "TestOne"}
	for name, c := range map[string]struct {
		patch       string
		found       string
		compileable bool
	}{
		"not broken":        {"return 1 ", "", true},
		"broken":            {"return 2", "TestOne: one is 2", true},
		"that is no Go":     {"return", "", false},
		"of the wrong type": {`return "1"`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			over, err := overlay(root, filepath.Join(dir, "patched"), []patch{{"p/p.go", "return 1", c.patch}})
			if err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(dir, "p.test")
			if err := test.compile(t.Context(), root, binary, over); (err == nil) != c.compileable {
				t.Fatalf("compile: %v", err)
			}
			if !c.compileable {
				return
			}
			if found, err := test.run(t.Context(), root, binary); found != c.found || err != nil {
				t.Errorf("found %q, %v", found, err)
			}
		})
	}
	var none rig.Overlay
	if err := test.compile(t.Context(), root, filepath.Join(t.TempDir(), "p.test"), none); err != nil {
		t.Errorf("without an overlay: %v", err)
	}
}
