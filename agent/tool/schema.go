package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaFor derives the schema of a tool's input from the type that the input is
// decoded into. Fields with omitempty are optional, and the jsonschema tag is the
// description of a field. Struct tags cannot express bounds, so refine sets them.
// It panics if a type has no schema: every test of this package would find that.
func schemaFor[T any](refine ...func(properties map[string]*jsonschema.Schema)) json.RawMessage {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {Type: "object"},
	}})
	if err != nil {
		panic(fmt.Sprintf("derive the schema of a tool: %v", err))
	}
	if s.Properties == nil {
		s.Properties = make(map[string]*jsonschema.Schema) // encoded as {}, where nil would be left out
	}
	for _, p := range s.Properties {
		dropNull(p)
	}
	for _, f := range refine {
		f(s.Properties)
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode the schema of a tool: %v", err))
	}
	return b
}

// dropNull removes null from the types of a property. Go types that can be nil are
// derived with it, but a model should leave a field out instead.
func dropNull(s *jsonschema.Schema) {
	types := slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	if len(types) == 1 {
		s.Type, s.Types = types[0], nil
	}
}

// noInput is the input of tools that take none.
type noInput struct{}

var noInputSchema = schemaFor[noInput]()

// minimum sets the least value of a numeric property.
func minimum(name string, least float64) func(map[string]*jsonschema.Schema) {
	return func(properties map[string]*jsonschema.Schema) { properties[name].Minimum = &least }
}

// maximum sets the greatest value of a numeric property.
func maximum(name string, most float64) func(map[string]*jsonschema.Schema) {
	return func(properties map[string]*jsonschema.Schema) { properties[name].Maximum = &most }
}

// minItems sets the least length of an array property.
func minItems(name string, least int) func(map[string]*jsonschema.Schema) {
	return func(properties map[string]*jsonschema.Schema) { properties[name].MinItems = &least }
}

// maxItems sets the greatest length of an array property.
func maxItems(name string, most int) func(map[string]*jsonschema.Schema) {
	return func(properties map[string]*jsonschema.Schema) { properties[name].MaxItems = &most }
}
