//go:build linux

package impostor

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// Field is one place in a frame: the names on the way to it, each with whether it is
// a list of what follows.
type Field struct {
	path []step
	leaf string // what the place holds: list, text or number
	each string // of a list, the shortest there is of one of it
}

type step struct {
	name string
	list bool
}

// String names the field as a reader of the protocol would: terminals[].command.
func (f Field) String() string {
	var names []string
	for i, s := range f.path {
		if s.list && i < len(f.path)-1 {
			s.name += "[]"
		}
		names = append(names, s.name)
	}
	return strings.Join(names, ".")
}

// Repeated are the fields of frames that hold any number of things, of all kinds.
func Repeated() []Field { return fields("list") }

// Texts are those that hold a text or bytes.
func Texts() []Field { return fields("text") }

// Numbers are those that hold a number.
func Numbers() []Field { return fields("number") }

// fields finds them by reflection, so that a new field is attacked automatically.
func fields(leaf string) (found []Field) {
	for _, f := range within(reflect.TypeFor[runner.Frame](), nil) {
		if f.leaf == leaf {
			found = append(found, f)
		}
	}
	return found
}

func within(t reflect.Type, path []step) (found []Field) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		found = append(found, at(field.Type, append(slices.Clip(path), step{name: name}))...)
	}
	return found
}

func at(t reflect.Type, path []step) []Field {
	switch t.Kind() { //nolint:exhaustive // the others hold nothing
	case reflect.Pointer:
		return at(t.Elem(), path)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return []Field{{path: path, leaf: "text"}}
		}
		return within(t, path)
	case reflect.String:
		return []Field{{path: path, leaf: "text"}}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return []Field{{path: path, leaf: "text"}}
		}
		self := Field{path: path, leaf: "list", each: shortest(t.Elem())}
		path = append([]step(nil), path...)
		path[len(path)-1].list = true
		if t.Elem().Kind() == reflect.Struct {
			return append([]Field{self}, within(t.Elem(), path)...)
		}
		return []Field{self}
	case reflect.Map:
		return []Field{{path: path, leaf: "list", each: shortest(t.Elem())}}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return []Field{{path: path, leaf: "number"}}
	}
	return nil
}

// shortest is the JSON of a value that takes the fewest bytes and still is one.
func shortest(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the others are numbers
	case reflect.Struct, reflect.Map:
		return "{}"
	case reflect.String:
		return `""`
	case reflect.Slice:
		return "[]"
	case reflect.Pointer:
		return shortest(t.Elem())
	}
	return "0"
}

// JSON is a frame of a kind with a value at the field, and nothing else but an id.
func (f Field) JSON(kind runner.Kind, id uint64, value []byte) []byte {
	head, err := json.Marshal(map[string]any{"kind": kind, "id": id})
	if err != nil {
		return nil
	}
	var open, closing string
	for i, s := range f.path {
		if i > 0 {
			open += "{"
			closing = "}" + closing
		}
		name, _ := json.Marshal(s.name) //nolint:errchkjson // a string
		open += string(name) + ":"
		if s.list && i < len(f.path)-1 {
			open += "["
			closing = "]" + closing
		}
	}
	b := make([]byte, 0, len(head)+len(open)+len(value)+len(closing)+2)
	if f.path[0].name == "kind" || f.path[0].name == "id" {
		b = append(b, `{`...)
	} else {
		b = append(append(b, head[:len(head)-1]...), ',')
	}
	b = append(append(append(b, open...), value...), closing...)
	return append(b, '}')
}

// Filled is a value of a list of as many as fit into so many bytes, or a text.
func (f Field) Filled(size int) []byte { return f.Some(size, size) }

// Some is the same with so many values at most, as the protocol counts them.
func (f Field) Some(size, values int) []byte {
	if f.leaf == "text" {
		return []byte(`"` + strings.Repeat("A", size-2) + `"`)
	}
	n := (size - 2) / (len(f.each) + 1)
	if f.each == "{}" || f.each == "[]" {
		values /= 2
	}
	return []byte("[" + strings.Repeat(f.each+",", max(min(n, values)-1, 0)) + f.each + "]")
}

// Kinds are all kinds of frame.
func Kinds() []runner.Kind {
	return []runner.Kind{
		runner.KindReply, runner.KindOutput, runner.KindHello, runner.KindBind, runner.KindBound, runner.KindRefused, runner.KindStart, runner.KindWait,
		runner.KindAsk, runner.KindKill, runner.KindForget, runner.KindDetach, runner.KindOpen, runner.KindStream, runner.KindTerminals, runner.KindResize,
		runner.KindEndTerminal, runner.KindPorts, runner.KindUsage, runner.KindRelieve, runner.KindQuiesce, runner.KindHeartbeat, "nothing",
	}
}
