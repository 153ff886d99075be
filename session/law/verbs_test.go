package law_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// groups are the verbs in the source, by the comment of the group that each is in.
func groups(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "command.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	verbs, of := make(map[string]bool), make(map[string]string)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == "verb" {
				verbs[d.Recv.List[0].Type.(*ast.Ident).Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					of[s.Name.Name] = d.Doc.Text()
				}
			}
		}
	}
	groups := make(map[string]string)
	for name := range verbs {
		groups[name] = of[name]
	}
	return groups
}

func TestEveryVerbHasOneRow(t *testing.T) {
	rows, names := make(map[string]bool), make(map[string]bool)
	for _, r := range law.Verbs {
		kind := reflect.TypeOf(r.Zero()).Name()
		if rows[kind] || names[r.Name] {
			t.Errorf("%s, called %s, has two rows", kind, r.Name)
		}
		rows[kind], names[r.Name] = true, true
	}
	for name := range groups(t) {
		if !rows[name] {
			t.Errorf("%s has no row", name)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s has a row and is no verb of command.go", name)
	}
}

// A verb that people ask for and that no server forwards would work on one server and not
// on two. A session is created by the server that is asked.
func TestEveryVerbThatPeopleAskForIsForwarded(t *testing.T) {
	groups := groups(t)
	for _, r := range law.Verbs {
		kind := reflect.TypeOf(r.Zero()).Name()
		people := strings.HasPrefix(groups[kind], "What people and programs ask for")
		if people && kind != "Create" && !r.Wire || !people && r.Wire {
			t.Errorf("%s: wire is %v", kind, r.Wire)
		}
	}
}

// What carries an id of a client is idempotent by it, and nothing else is.
func TestVerbsAreIdempotentByTheIDsTheyCarry(t *testing.T) {
	for _, r := range law.Verbs {
		v := r.Zero()
		switch v.(type) { //nolint:gochecksumtype // those whose ids are elsewhere
		case law.Create, law.Send, law.ApplyAction:
			continue
		}
		if ids := len(law.ClientIDs(v)) > 0; ids != (r.Repeat == law.IdempotentByID) {
			t.Errorf("%s: has ids is %v, repeat is %v", r.Name, ids, r.Repeat)
		}
	}
}

func TestWhatAnAgentMayAskForPeopleMayToo(t *testing.T) {
	for _, r := range law.Verbs {
		if r.Agent && !r.Wire {
			t.Errorf("%s: an agent may ask for it, and people may not", r.Name)
		}
	}
}

type stranger struct{ law.Verb }

func TestAVerbWithoutARowIsRefused(t *testing.T) {
	if _, err := law.Decide(law.State{Seq: 1}, law.Command{Verb: stranger{}}); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("decided: %v", err)
	}
}
