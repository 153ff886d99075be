package closedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// ErrTrailing means that something follows a value which should be the only one.
var ErrTrailing = errors.New("more than one value")

// Decode decodes one value, and nothing else, into an ordinary Go type: as
// encoding/json does, but a name that the type does not have is an error. Errors
// are those of encoding/json, or ErrTrailing.
func Decode(data []byte, v any) error {
	n, err := DecodePrefix(data, v)
	if err == nil && len(bytes.Trim(data[n:], " \t\r\n")) > 0 {
		err = ErrTrailing
	}
	return err
}

// DecodePrefix decodes the value at the beginning of data as Decode does, and
// returns how many bytes it took. What follows may be anything.
func DecodePrefix(data []byte, v any) (int, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	return int(d.InputOffset()), err
}

// DecodeObject decodes an object into an ordinary struct as Decode does, and also
// refuses what encoding/json takes: text that is not UTF-8, NUL characters, names
// given twice, names of the object itself in another case, numbers that no float
// can hold, and values nested deeper than depth. Errors are of type *Error.
func DecodeObject(data []byte, v any, depth int) error {
	if err := check(data, limits{depth: depth, floats: true}); err != nil {
		return err
	}
	data = bytes.TrimSpace(data)
	if data[0] != '{' {
		return wrongKind("an object", data)
	}
	named := fieldsOf(reflect.TypeOf(v).Elem()).named
	for name := range members(data) {
		if _, ok := named[name]; !ok {
			return unknown(name)
		}
	}
	if err := Decode(data, v); err != nil {
		return Explain(err)
	}
	return nil
}

// Members returns the values of an object by name. A name is given once; what is
// nested in the values is not looked at.
func Members(data []byte) (map[string]json.RawMessage, error) {
	if err := valid(data, 0); err != nil {
		return nil, err
	}
	data = bytes.TrimSpace(data)
	if data[0] != '{' {
		return nil, wrongKind("an object", data)
	}
	all := make(map[string]json.RawMessage)
	for name, value := range members(data) {
		if _, twice := all[name]; twice {
			return nil, In(Name(name), Errorf("is given twice"))
		}
		all[name] = bytes.Clone(value)
	}
	return all, nil
}

// Explain is an error of encoding/json as an *Error.
func Explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &Error{Path: e.Field, Message: "must be " + kindOf(e.Type) + ", not " + e.Value}
	}
	message := strings.TrimPrefix(err.Error(), "json: ")
	if quoted, ok := strings.CutPrefix(message, "unknown field "); ok {
		if name, err := strconv.Unquote(quoted); err == nil {
			return unknown(name)
		}
	}
	return &Error{Message: message}
}

func unknown(name string) *Error {
	return &Error{Path: Name(name), Message: "there is no such field", Unknown: true}
}

// kindOf names the JSON kind of a Go type for an error.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the other kinds are numbers, or in no document
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}
