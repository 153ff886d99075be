package law_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// TestNoFactHoldsAStatus fails if a status or phase could be stored: in the
// state, or in the payload of any event.
func TestNoFactHoldsAStatus(t *testing.T) {
	for _, v := range []any{
		law.State{},
		dormouse.Event{},
		dormouse.Created{},
		dormouse.PromptBody{},
		dormouse.Prompts{},
		dormouse.TurnFact{},
		dormouse.Blocked{},
		dormouse.Attempt{},
		dormouse.OpFact{},
		dormouse.OpEnd{},
		dormouse.SandboxFact{},
		dormouse.Snapshot{},
		dormouse.SnapshotAsk{},
		dormouse.SnapshotSkip{},
		dormouse.SnapshotsGone{},
		dormouse.WorkspaceSwap{},
		dormouse.Truncation{},
		dormouse.Attention{},
		dormouse.Termination{},
		dormouse.Message{},
		dormouse.ToolUse{},
		dormouse.ToolResult{},
		dormouse.CustomToolResult{},
		dormouse.ToolConfirmation{},
		dormouse.SpanEnd{},
		dormouse.Idle{},
		dormouse.ThreadStatus{},
		dormouse.Usage{},
		dormouse.Failure{},
		dormouse.Update{},
		dormouse.Tagging{},
		dormouse.ThreadCreated{},
		dormouse.Question{},
		dormouse.Wakeup{},
		dormouse.WakeupFact{},
		dormouse.Spawned{},
		dormouse.ChildFact{},
	} {
		findStatus(t, reflect.TypeOf(v), reflect.TypeOf(v).Name(), make(map[reflect.Type]bool))
	}
}

func findStatus(t *testing.T, typ reflect.Type, path string, seen map[reflect.Type]bool) {
	if typ == reflect.TypeFor[dormouse.Phase]() || typ == reflect.TypeFor[dormouse.Status]() {
		t.Errorf("%s stores what must be derived", path)
	}
	if seen[typ] {
		return
	}
	seen[typ] = true
	switch typ.Kind() { //nolint:exhaustive // only these contain others
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		findStatus(t, typ.Elem(), path, seen)
	case reflect.Struct:
		for f := range typ.Fields() {
			findStatus(t, f.Type, path+"."+f.Name, seen)
		}
	}
}

// TestOnlyProjectWritesAnIndexRow fails if a path other than the projection
// gives a session's row a phase or a status.
func TestOnlyProjectWritesAnIndexRow(t *testing.T) {
	writers := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if strings.HasPrefix(path, "../../store/") || strings.HasPrefix(path, "../../bench/") || strings.HasPrefix(path, "../../e2e/") {
			return nil // backends carry rows, they do not make them
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if sel, ok := lit.Type.(*ast.SelectorExpr); !ok || sel.Sel.Name != "SessionRow" {
				return true
			}
			if len(lit.Elts) == 0 {
				return true
			}
			if writers++; filepath.Base(path) != "project.go" {
				t.Errorf("%s makes an index row", path)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if writers != 1 {
		t.Errorf("%d places make an index row, want 1", writers)
	}
}
