package contract

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Fields lists every field that a value of type t has as JSON, each with its path from
// the value and the kind of what is there: "content[].text? string". A question mark
// means that the field may be left out. A field without a name for JSON has its Go name,
// as encoding/json gives it.
func Fields(t reflect.Type) []string {
	var w walker
	w.value(t, "")
	return w.lines
}

// walker lists the fields of one type.
type walker struct {
	lines []string
	in    []reflect.Type // what is being walked, so that a type within itself ends
}

func (w *walker) add(at, kind string) {
	w.lines = append(w.lines, strings.TrimSpace(at+" "+kind))
}

func (w *walker) value(t reflect.Type, at string) {
	kind, leaf := kindOf(t)
	if leaf {
		w.add(at, kind)
		return
	}
	switch t.Kind() { //nolint:exhaustive // the others are leaves
	case reflect.Pointer:
		w.value(t.Elem(), at)
	case reflect.Slice, reflect.Array:
		w.value(t.Elem(), at+"[]")
	case reflect.Map:
		w.value(t.Elem(), at+"{}")
	case reflect.Struct:
		if slices.Contains(w.in, t) {
			w.add(at, "as above")
			return
		}
		w.in = append(w.in, t)
		w.add(at, kind)
		w.members(t, at)
		w.in = w.in[:len(w.in)-1]
	}
}

func (w *walker) members(t reflect.Type, at string) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
		case tag == "" && custom(t):
			// Its name is not in the JSON. What only says whether there is a value is no part
			// of one.
			if inner.Kind() != reflect.Bool {
				w.value(f.Type, at)
			}
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct && !custom(inner):
			w.members(inner, at)
		case !f.IsExported():
		default:
			if name == "" {
				name = f.Name
			}
			if strings.Contains(options, "omit") {
				name += "?"
			}
			w.value(f.Type, strings.TrimPrefix(at+"."+name, "."))
		}
	}
}

// kindOf is the word for a type, and whether there is nothing within it to list.
func kindOf(t reflect.Type) (kind string, leaf bool) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return "time", true
	case reflect.TypeFor[json.RawMessage]():
		return "json", true
	case reflect.TypeFor[[]byte]():
		return "bytes", true
	}
	switch k := t.Kind(); {
	case k == reflect.Pointer:
		return "", false
	case custom(t):
		return "custom", k != reflect.Struct
	case k >= reflect.Int && k <= reflect.Int64:
		return "int", true
	case k >= reflect.Uint && k <= reflect.Uintptr:
		return "uint", true
	case k == reflect.Float32 || k == reflect.Float64:
		return "float", true
	case k == reflect.Interface:
		return "any", true
	case k == reflect.Struct:
		return "object", false
	case k == reflect.Slice || k == reflect.Array || k == reflect.Map:
		return "", false
	}
	return t.Kind().String(), true
}

// custom reports whether a type encodes itself.
func custom(t reflect.Type) bool {
	for _, i := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
		reflect.TypeFor[closedjson.Decoder](),
	} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}
