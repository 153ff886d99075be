// Package schema checks the answers of a server against the official description
// of the Managed Agents API, which travels inside the Go SDK's module. It reads
// the file from the module cache; nothing of it is stored here.
package schema

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// module is where the description travels.
const module = "github.com/anthropics/anthropic-sdk-go/v2"

// address is what the description is called while it is compiled.
const address = "mem:///spec.json"

// Spec is the official description.
type Spec struct {
	operations []*Operation
	events     []string

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // guarded by mu; by pointer
}

// Load reads the description from the module cache, once.
var Load = sync.OnceValues(func() (*Spec, error) {
	dir, err := ModuleDir(context.Background(), module)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, "scripts", "mock-spec.json.gz"))
	if err != nil {
		return nil, fmt.Errorf("open the description: %w", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("unpack the description: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(z)
	if err != nil {
		return nil, fmt.Errorf("read the description: %w", err)
	}
	return newSpec(doc)
})

// ModuleDir is where a module of ours lies in the module cache.
func ModuleDir(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	out, err := cmd.Output()
	dir := strings.TrimSpace(string(out))
	if err == nil && dir == "" {
		cmd = exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
		var got struct{ Dir string }
		if out, err = cmd.Output(); err == nil {
			err = json.Unmarshal(out, &got)
		}
		dir = got.Dir
	}
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	return dir, nil
}

// newSpec reads the operations out of an OpenAPI document.
func newSpec(doc any) (*Spec, error) {
	s := &Spec{compiler: jsonschema.NewCompiler(), compiled: make(map[string]*jsonschema.Schema)}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	s.compiler.AssertFormat()
	if err := s.compiler.AddResource(address, doc); err != nil {
		return nil, fmt.Errorf("add the description: %w", err)
	}
	paths, ok := at(doc, "paths").(map[string]any)
	if !ok {
		return nil, errors.New("the description has no paths")
	}
	for path, methods := range paths {
		all, _ := methods.(map[string]any)
		for method, op := range all {
			s.operations = append(s.operations, newOperation(s, path, method, op))
		}
	}
	slices.SortFunc(s.operations, func(a, b *Operation) int { return strings.Compare(a.pointer, b.pointer) })
	types, _ := at(doc, "components", "schemas", streamed, "discriminator", "mapping").(map[string]any)
	for t := range types {
		s.events = append(s.events, t)
	}
	slices.Sort(s.events)
	if len(s.operations) == 0 || len(s.events) == 0 {
		return nil, errors.New("the description has no operations or no events")
	}
	return s, nil
}

// streamed is the schema of what a session's stream carries.
const streamed = "BetaManagedAgentsStreamSessionEvents"

// EventTypes lists every type of event a stream may carry.
func (s *Spec) EventTypes() []string { return slices.Clone(s.events) }

// at walks down a document.
func at(doc any, keys ...string) any {
	for _, k := range keys {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil
		}
		doc = m[k]
	}
	return doc
}

// schema compiles what a JSON pointer of the description points at.
func (s *Spec) schema(pointer string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.compiled[pointer]; found != nil {
		return found, nil
	}
	made, err := s.compiler.Compile(address + "#" + pointer)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", pointer, err)
	}
	s.compiled[pointer] = made
	return made, nil
}

// component points at a named schema.
func component(name string) string { return "/components/schemas/" + name }

// Named holds a value against a schema of the description by its name.
func (s *Spec) Named(name string, body []byte) error { return s.hold(component(name), body) }

// hold holds a value against what a pointer points at.
func (s *Spec) hold(pointer string, body []byte) error {
	sch, err := s.schema(pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
	if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if err := sch.Validate(v); err != nil {
		return explain(err)
	}
	return nil
}

// explain says in a few lines what was wrong. Of a union that failed only the
// branch that came furthest is worth reading.
func explain(err error) error {
	failed, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	deepest := failed
	walk(failed, func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 && (len(deepest.Causes) > 0 || len(e.InstanceLocation) > len(deepest.InstanceLocation)) {
			deepest = e
		}
	})
	out := deepest.BasicOutput()
	if len(out.Errors) == 0 && out.Error != nil {
		return fmt.Errorf("at /%s: %s", strings.Join(deepest.InstanceLocation, "/"), out.Error)
	}
	return fmt.Errorf("at /%s: %s", strings.Join(deepest.InstanceLocation, "/"), failed.Error())
}

func walk(e *jsonschema.ValidationError, see func(*jsonschema.ValidationError)) {
	see(e)
	for _, c := range e.Causes {
		walk(c, see)
	}
}
