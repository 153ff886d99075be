package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Package is a package as the go command lists it.
type Package struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
	Module                  *struct{ Main bool }
}

// InModule reports whether the package is of this module.
func (p Package) InModule() bool { return p.Module != nil && p.Module.Main }

// List asks the go command about packages.
func List(ctx context.Context, args ...string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,Imports,Module"}, args...)...) //nolint:gosec // the words are the test's own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")                                                                                   // as programs are built, so that nothing is compiled again
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var all []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p)
	}
}

// Source is the checked source of all packages of ours that a program is made of.
type Source struct {
	packages []*types.Package
	structs  []*types.Struct // every one that is written out somewhere
}

// Load reads the source of programs and of all of ours that they import, without tests.
func Load(ctx context.Context, programs ...string) (*Source, error) {
	all, err := List(ctx, append([]string{"-deps", "-export"}, programs...)...)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string, len(all))
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(exports[path])
	})
	s := new(Source)
	for _, p := range all {
		if p.InModule() {
			if err := s.check(p, fset, imports); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Source) check(p Package, fset *token.FileSet, imports types.Importer) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	checked, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info)
	if err != nil {
		return err
	}
	s.packages = append(s.packages, checked)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if e, ok := n.(*ast.StructType); ok {
				if t, ok := info.TypeOf(e).(*types.Struct); ok {
					s.structs = append(s.structs, t)
				}
			}
			return true
		})
	}
	return nil
}
