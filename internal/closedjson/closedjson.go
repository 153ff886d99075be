// Package closedjson is the strict decoder of JSON. A name that a type does not have
// is always an error.
//
// Unmarshal decodes into types that say exactly what may be there: a name given
// twice and a value of the wrong kind are errors that say where, and a field knows
// whether it was left out, null or given. Decode and DecodeObject are for ordinary
// Go types, which encoding/json decodes.
package closedjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Optional is a field that may be left out, or be null. A field that is neither Optional nor
// Omittable must be there, and must not be null.
type Optional[T any] struct {
	Set   bool // it was given, if only as null
	Null  bool // it was given as null
	Value T
}

// Some is a field that was given.
func Some[T any](v T) Optional[T] { return Optional[T]{Set: true, Value: v} }

// Given reports whether there is a value.
func (o Optional[T]) Given() bool { return o.Set && !o.Null }

// Or is the value, or other if there is none.
func (o Optional[T]) Or(other T) T {
	if o.Given() {
		return o.Value
	}
	return other
}

// DecodeJSON implements Decoder.
func (o *Optional[T]) DecodeJSON(raw []byte) error {
	*o = Optional[T]{Set: true}
	if isNull(raw) {
		o.Null = true
		return nil
	}
	return bind(raw, reflect.ValueOf(&o.Value).Elem())
}

func (*Optional[T]) optional() {}

// Omittable is a field that may be left out, but not be null.
type Omittable[T any] struct {
	Set   bool // it was given
	Value T
}

// DecodeJSON implements Decoder.
func (o *Omittable[T]) DecodeJSON(raw []byte) error {
	if isNull(raw) {
		return Errorf("must not be null; leave it out")
	}
	o.Set = true
	return bind(raw, reflect.ValueOf(&o.Value).Elem())
}

func (*Omittable[T]) optional() {}

// Or is the value, or other if it was left out.
func (o Omittable[T]) Or(other T) T {
	if o.Set {
		return o.Value
	}
	return other
}

// Optional is the same field where null could have been given too.
func (o Omittable[T]) Optional() Optional[T] { return Optional[T]{Set: o.Set, Value: o.Value} }

// Decoder is implemented by types that decode themselves, such as those that may be
// a string or an object. It is given one valid value without space around it.
type Decoder interface{ DecodeJSON(raw []byte) error }

// Error is what is wrong with a document, and where.
type Error struct {
	// Path leads to the value from the top, such as tools[2].name; empty for the
	// document itself.
	Path    string
	Message string
	// Unknown says that there should be no field of this name.
	Unknown bool
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Errorf is an error of the value that is being decoded.
func Errorf(format string, args ...any) error { return &Error{Message: fmt.Sprintf(format, args...)} }

// In prefixes the path of err with a name, or an index in brackets.
func In(step string, err error) error {
	e, ok := err.(*Error) //nolint:errorlint // paths are built as the error is returned, before anybody wraps it
	if !ok {
		e = &Error{Message: err.Error()}
	}
	path := step
	switch {
	case strings.HasPrefix(e.Path, "["):
		path += e.Path
	case e.Path != "":
		path += "." + e.Path
	}
	return &Error{Path: path, Message: e.Message, Unknown: e.Unknown}
}

// Unmarshal decodes one value, and nothing else, into what v points to.
func Unmarshal(data []byte, v any) error {
	if err := check(data, limits{depth: maxDepth}); err != nil {
		return err
	}
	return Bind(bytes.TrimSpace(data), v)
}

// Bind decodes a part of a document that a Decoder was given.
func Bind(raw []byte, v any) error { return bind(raw, reflect.ValueOf(v).Elem()) }

var rawMessage = reflect.TypeFor[json.RawMessage]()

func bind(raw []byte, v reflect.Value) error {
	if d, ok := reflect.TypeAssert[Decoder](v.Addr()); ok {
		return d.DecodeJSON(raw)
	}
	if v.Type() == rawMessage {
		v.SetBytes(bytes.Clone(raw))
		return nil
	}
	switch v.Kind() { //nolint:exhaustive // no document has the other kinds
	case reflect.Struct:
		return bindStruct(raw, v)
	case reflect.Map:
		return bindMap(raw, v)
	case reflect.Slice:
		return bindSlice(raw, v)
	case reflect.String:
		if raw[0] != '"' {
			return wrongKind("a string", raw)
		}
		v.SetString(unquote(raw))
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			return wrongKind("true or false", raw)
		}
		v.SetBool(raw[0] == 't')
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
		if err != nil {
			return wrongKind("a whole number", raw)
		}
		v.SetInt(n)
	default:
		panic("closedjson: no document has a " + v.Type().String())
	}
	return nil
}

func bindStruct(raw []byte, v reflect.Value) error {
	if raw[0] != '{' {
		return wrongKind("an object", raw)
	}
	fields := fieldsOf(v.Type())
	given := make([]bool, len(fields.list))
	for name, value := range members(raw) {
		i, ok := fields.named[name]
		if !ok {
			return unknown(name)
		}
		if err := bind(value, v.FieldByIndex(fields.list[i].index)); err != nil {
			return In(name, err)
		}
		given[i] = true
	}
	for i, f := range fields.list {
		if f.required && !given[i] {
			return In(f.name, Errorf("is required"))
		}
	}
	return nil
}

// field is a field that a document may have.
type field struct {
	name     string
	index    []int
	required bool
}

// fields are those of a type, in the order of their names.
type fields struct {
	list  []field
	named map[string]int
}

var known sync.Map // of reflect.Type to *fields

func fieldsOf(t reflect.Type) *fields {
	if f, ok := known.Load(t); ok {
		return f.(*fields) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	f := &fields{named: make(map[string]int)}
	for _, sf := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(sf.Tag.Get("json"), ","); name != "" {
			may := reflect.PointerTo(sf.Type).Implements(reflect.TypeFor[interface{ optional() }]())
			f.list = append(f.list, field{name: name, index: sf.Index, required: !may})
		}
	}
	slices.SortFunc(f.list, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for i := range f.list {
		f.named[f.list[i].name] = i
	}
	known.Store(t, f)
	return f
}

func bindMap(raw []byte, v reflect.Value) error {
	if raw[0] != '{' {
		return wrongKind("an object", raw)
	}
	v.Set(reflect.MakeMap(v.Type()))
	for name, value := range members(raw) {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := bind(value, item); err != nil {
			return In(Name(name), err)
		}
		v.SetMapIndex(reflect.ValueOf(name), item)
	}
	return nil
}

func bindSlice(raw []byte, v reflect.Value) error {
	if raw[0] != '[' {
		return wrongKind("a list", raw)
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for value := range elements(raw) {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := bind(value, item); err != nil {
			return In("["+strconv.Itoa(v.Len())+"]", err)
		}
		v.Set(reflect.Append(v, item))
	}
	return nil
}

func isNull(raw []byte) bool { return raw[0] == 'n' }

// Kind names the kind of a value for an error.
func Kind(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

func wrongKind(want string, raw []byte) error {
	got := Kind(raw)
	if got == "a number" {
		got = Name(string(raw))
	}
	return Errorf("must be %s, not %s", want, got)
}

// Name is a name from the document, shortened for an error.
func Name(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
