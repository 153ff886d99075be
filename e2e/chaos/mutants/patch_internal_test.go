package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPatchThatDoesNotFitIsRefused(t *testing.T) {
	const source = "if a {\n}\nif b {\n}\n"
	for name, p := range map[string]patch{
		"text that is gone":        {"x.go", "if c {", "if d {"},
		"text that is there twice": {"x.go", "if ", "for "},
		"no text":                  {"x.go", "", "if d {"},
		"no change":                {"x.go", "if a {", "if a {"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := p.apply(source); err == nil {
				t.Errorf("made %q of it", got)
			}
		})
	}
	if got, err := (patch{"x.go", "if a {", "if !a {"}).apply(source); err != nil || got != "if !a {\n}\nif b {\n}\n" {
		t.Errorf("one that fits made %q, %v", got, err)
	}
}

func TestPatchesOfOneFileAddUp(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(filepath.Join(root, "x.go"), []byte("a b"), 0o600); err != nil {
		t.Fatal(err)
	}
	over, err := overlay(root, dir, []patch{{"x.go", "a", "c"}, {"x.go", "b", "d"}})
	if err != nil || len(over) != 1 {
		t.Fatalf("overlay %v, %v", over, err)
	}
	got, err := os.ReadFile(over[filepath.Join(root, "x.go")])
	if err != nil || string(got) != "c d" {
		t.Errorf("patched is %q, %v", got, err)
	}
	if left, err := os.ReadFile(filepath.Join(root, "x.go")); err != nil || string(left) != "a b" {
		t.Errorf("the source is %q, %v", left, err)
	}
}
