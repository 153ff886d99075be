package vault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The linter says so as well. Here it is said by name alone, of whatever type.
func TestOnlyEgressRevealsASecret(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			switch name := e.Name(); {
			case name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") && name != "..", path == filepath.Join("..", "egress"):
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Reveal" {
				t.Errorf("%s reveals a secret", path)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 300 {
		t.Errorf("%d files, %v", files, err)
	}
}
