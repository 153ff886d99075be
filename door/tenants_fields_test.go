//go:build linux

package door_test

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/internal/contract"
)

const (
	clients  = "a client's own name for what it makes, which is a part of the id it gets; see the test of names"
	models   = "models are the server's, not a tenant's"
	unserved = "refused, whatever it is"
)

// fields are the members of requests that are ids by their type or look so by their
// name: for each the place that is tried with the ids of another tenant, or why none is.
// Bodies that have many forms cannot be read off a type, so that this list is
// held against the source.
var fields = map[string]string{
	"rest.answerRequest.id":                 clients,
	"rest.answerRequest.tool_use_id":        "POST /api/sessions/{id}/answers body tool_use_id",
	"rest.answerRequest.custom_tool_use_id": "POST /api/sessions/{id}/answers body custom_tool_use_id",
	"rest.branchRequest.snapshot":           "POST /api/sessions/{id}/branch body snapshot",
	"rest.createRequest.parent":             "POST /api/sessions body parent",
	"rest.createRequest.prompt_id":          clients,
	"rest.execRequest.id":                   clients,
	"rest.interruptRequest.thread":          "POST /api/sessions/{id}/interrupt body thread",
	"rest.openRequest.id":                   clients,
	"rest.promptRequest.id":                 clients,
	"rest.promptRequest.thread":             "POST /api/sessions/{id}/prompts body thread",
	"rest.restoreRequest.snapshot":          "POST /api/sessions/{id}/restore body snapshot",
	"rest.revertRequest.prompt":             "POST /api/sessions/{id}/revert body prompt",
	"rest.snapshotRequest.id":               clients,
	"rest.threadRequest.thread":             "POST /api/sessions/{id}/retry body thread",
	"rest.wakeupRequest.id":                 clients,
	"rest.wakeupRequest.thread":             "POST /api/sessions/{id}/wakeups body thread",

	"catalog.AgentRef.id":                          "POST /v1/sessions body agent.id",
	"catalog.ModelParams.id":                       models,
	"catalog.object.id":                            models,
	"catalog.refreshParams.client_id":              "it is what somebody else's server calls its client",
	"catalog.SkillParams.skill_id":                 "skills are of nobody: their ids are kept and not looked up",
	"v1.inputEvent.DecodeJSON.session_thread_id":   "POST /v1/sessions/{session_id}/events body events[0].session_thread_id",
	"v1.inputEvent.DecodeJSON.custom_tool_use_id":  "POST /v1/sessions/{session_id}/events body events[0].custom_tool_use_id",
	"v1.inputEvent.decodeConfirmation.tool_use_id": "POST /v1/sessions/{session_id}/events body events[0].tool_use_id",
	"v1.sessionParams.environment_id":              "POST /v1/sessions body environment_id",
	"v1.sessionParams.vault_ids":                   unserved,
	"v1.Server.updateSession.vault_ids":            unserved,
	"v1.source.file_id":                            unserved,
}

// decoders are the functions that requests are decoded by.
var decoders = map[string]bool{"decode": true, "decodeBody": true, "decodeJSON": true, "Bind": true, "Unmarshal": true}

var looksLikeID = regexp.MustCompile(`^(id|ids|.*_ids?)$`)

// fieldsWithIDs finds the members that may be ids of everything that the doors and the
// catalog decode, and where each is.
func fieldsWithIDs(t *testing.T) map[string]string {
	t.Helper()
	const module = "github.com/dormouse-run/dormouse/"
	packages := []string{module + "door/rest", module + "door/v1", module + "catalog"}
	all, err := contract.List(t.Context(), append([]string{"-deps", "-export"}, packages...)...)
	if err != nil {
		t.Fatal(err)
	}
	exports := make(map[string]contract.Package, len(all))
	for _, p := range all {
		exports[p.ImportPath] = p
	}
	fset := token.NewFileSet()
	lookup := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path].Export == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(exports[path].Export)
	})
	found := make(map[string]string)
	for _, path := range packages {
		var files []*ast.File
		for _, name := range exports[path].GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(exports[path].Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
		if _, err := (&types.Config{Importer: lookup}).Check(path, fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			decoded(f, func(within string, target ast.Expr) {
				pointer, ok := info.TypeOf(target).Underlying().(*types.Pointer)
				if !ok {
					return // of the function itself: its callers name the type
				}
				name := filepath.Base(path) + "." + within
				idsOf(pointer.Elem(), name, make(map[types.Type]bool), func(key string, at token.Pos) {
					found[key] = fset.Position(at).String()
				})
			})
		}
	}
	return found
}

// decoded calls f with everything that is decoded into, and the function that does it.
func decoded(file *ast.File, f func(within string, target ast.Expr)) {
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || decoders[fn.Name.Name] {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			var name string
			switch callee := call.Fun.(type) {
			case *ast.Ident:
				name = callee.Name
			case *ast.SelectorExpr:
				name = callee.Sel.Name
				if from, ok := callee.X.(*ast.Ident); ok && from.Name == "json" {
					return true // what is stored, or a part of a request that is decoded already
				}
			}
			if decoders[name] {
				f(nameOf(fn), call.Args[len(call.Args)-1])
			}
			return true
		})
	}
}

// nameOf is a function's name, after that of what it is a method of.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if of, ok := of.(*ast.Ident); ok {
		return of.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// idsOf calls f with the members of a type that may be ids. A type that has a name is
// the same wherever it is decoded.
func idsOf(t types.Type, name string, seen map[types.Type]bool, f func(key string, at token.Pos)) {
	if seen[t] {
		return
	}
	seen[t] = true
	if named, ok := types.Unalias(t).(*types.Named); ok {
		if args := named.TypeArgs(); args != nil { // a field that may be left out
			for arg := range args.Types() {
				idsOf(arg, name, seen, f)
			}
			return
		}
		if p := named.Obj().Pkg(); p != nil {
			name = filepath.Base(p.Path()) + "." + named.Obj().Name()
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		idsOf(u.Elem(), name, seen, f)
	case *types.Slice:
		idsOf(u.Elem(), name, seen, f)
	case *types.Map:
		idsOf(u.Elem(), name, seen, f)
	case *types.Struct:
		for i := range u.NumFields() {
			member, _, _ := strings.Cut(reflect.StructTag(u.Tag(i)).Get("json"), ",")
			if member == "" && !u.Field(i).Embedded() {
				continue
			}
			if member != "" && (looksLikeID.MatchString(member) || isID(u.Field(i).Type())) {
				f(name+"."+member, u.Field(i).Pos())
			}
			idsOf(u.Field(i).Type(), name+"."+member, seen, f)
		}
	}
}

// isID reports whether a type is one of the ids of the vocabulary, or a list of them.
func isID(t types.Type) bool {
	switch u := types.Unalias(t).(type) {
	case *types.Pointer:
		return isID(u.Elem())
	case *types.Slice:
		return isID(u.Elem())
	case *types.Named:
		for arg := range u.TypeArgs().Types() {
			if isID(arg) {
				return true
			}
		}
		return u.Obj().Pkg() != nil && u.Obj().Pkg().Name() == "dormouse" && strings.HasSuffix(u.Obj().Name(), "ID")
	}
	return false
}

// Every member of a request that may be an id is known, and no other.
func TestEveryFieldThatMayBeAnIDIsKnown(t *testing.T) {
	found := fieldsWithIDs(t)
	for key, at := range found {
		if _, ok := fields[key]; !ok {
			t.Errorf("%s (%s) may be an id: say in fields where it is tried, or why it is none", key, at)
		}
	}
	for key := range fields {
		if found[key] == "" {
			t.Errorf("%s is in fields, and in no request", key)
		}
	}
}
