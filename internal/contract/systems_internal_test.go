package contract

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systems are those that a program is said to run on beside the one it is built on, and
// which programs those are. `make cross` has the compiler vet them, which takes minutes.
var systems = []struct {
	os, arch string
	programs []string
}{
	{"linux", "arm64", []string{"./cmd/...", "./client"}},
	{"darwin", "amd64", []string{"./cmd/dormouse", "./client"}},
	{"darwin", "arm64", []string{"./cmd/dormouse", "./client"}},
	{"windows", "amd64", []string{"./cmd/dormouse", "./client"}},
	{"windows", "arm64", []string{"./cmd/dormouse", "./client"}},
}

// Everything that a program is made of has the types that it needs on each system, ours
// and that of others. Nothing is compiled, and bodies of functions are read in ours alone.
func TestProgramsHaveTheirTypesOnEverySystem(t *testing.T) {
	for _, s := range systems {
		t.Run(s.os+"-"+s.arch, func(t *testing.T) {
			t.Parallel()
			parts, err := listFor(t.Context(), s.os, s.arch, s.programs...)
			if err != nil {
				t.Fatal(err)
			}
			checked := checker{arch: s.arch, fset: token.NewFileSet(), packages: map[string]*types.Package{"unsafe": types.Unsafe}}
			for _, p := range parts {
				if err := checked.add(p); err != nil {
					t.Errorf("%s/%s: %v", s.os, s.arch, err)
				}
			}
		})
	}
}

// part is a package that a program is made of, as the go command lists it.
type part struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// listFor lists programs and all that they import, each after what it imports itself.
func listFor(ctx context.Context, system, arch string, programs ...string) ([]part, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"}, programs...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var parts []part
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p part
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return parts, nil
		case err != nil:
			return nil, err
		}
		parts = append(parts, p)
	}
}

// checker has the types of the packages that it was given, for one system.
type checker struct {
	arch     string
	fset     *token.FileSet
	packages map[string]*types.Package
}

func (c *checker) add(p part) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	ours := p.Module != nil && p.Module.Main
	files := make([]*ast.File, 0, len(p.GoFiles))
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	var wrong error
	config := types.Config{
		Importer:         importMap{c.packages, p.ImportMap},
		Sizes:            types.SizesFor("gc", c.arch),
		IgnoreFuncBodies: !ours,
		Error:            func(err error) { wrong = errors.Join(wrong, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	made, _ := config.Check(p.ImportPath, c.fset, files, nil)
	c.packages[p.ImportPath] = made
	return wrong
}

// importMap finds packages that were checked before, under the names that one of them
// imports them by.
type importMap struct {
	packages map[string]*types.Package
	names    map[string]string
}

func (m importMap) Import(path string) (*types.Package, error) {
	if name, ok := m.names[path]; ok {
		path = name
	}
	if p := m.packages[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("no package " + path)
}
