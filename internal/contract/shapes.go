package contract

import (
	"go/constant"
	"go/types"
	"reflect"
	"slices"
	"strings"
)

// Shapes lists every struct that names a field for JSON, wherever it is declared: its
// fields in their order, as "{id:string tags?:[]string parent?:object}". A shape has no
// name, so that a type may be called anything and lie anywhere.
//
// Other lists are more exact about what they list. This one leaves nothing out: records
// on disk, frames, requests and answers of every kind are there.
func (s *Source) Shapes() []string {
	var all []string
	for _, t := range s.structs {
		if tagged(t) {
			all = append(all, "{"+strings.Join(members(t), " ")+"}")
		}
	}
	slices.Sort(all)
	return all
}

// Wider reports whether one shape is another one with fields added.
func Wider(from, to string) bool {
	rest := strings.Fields(strings.Trim(to, "{}"))
	for field := range strings.FieldsSeq(strings.Trim(from, "{}")) {
		at := slices.Index(rest, field)
		if at < 0 {
			return false
		}
		rest = rest[at+1:]
	}
	return true
}

// Words lists the values of all constants whose type is that of a field for JSON: the
// types of events, phases, kinds.
func (s *Source) Words() []string {
	spoken := make(map[string]bool)
	for _, t := range s.structs {
		for i := range t.NumFields() {
			if name, _, _ := strings.Cut(reflect.StructTag(t.Tag(i)).Get("json"), ","); name != "" && name != "-" {
				note(t.Field(i).Type(), spoken)
			}
		}
	}
	var all []string
	for _, p := range s.packages {
		for _, name := range p.Scope().Names() {
			c, ok := p.Scope().Lookup(name).(*types.Const)
			if !ok || c.Val().Kind() != constant.String || !spoken[types.TypeString(c.Type(), nil)] {
				continue
			}
			if word := constant.StringVal(c.Val()); word != "" {
				all = append(all, word)
			}
		}
	}
	slices.Sort(all)
	return all
}

// note notes the named types that a field is made of.
func note(t types.Type, spoken map[string]bool) {
	switch u := types.Unalias(t).(type) {
	case *types.Named:
		spoken[types.TypeString(u, nil)] = true
		for arg := range u.TypeArgs().Types() {
			note(arg, spoken)
		}
	case *types.Pointer:
		note(u.Elem(), spoken)
	case *types.Slice:
		note(u.Elem(), spoken)
	case *types.Map:
		note(u.Key(), spoken)
		note(u.Elem(), spoken)
	}
}

func tagged(t *types.Struct) bool {
	for i := range t.NumFields() {
		if tag := reflect.StructTag(t.Tag(i)).Get("json"); tag != "" && tag != "-" {
			return true
		}
	}
	return false
}

func members(t *types.Struct) (all []string) {
	for i := range t.NumFields() {
		f, tag := t.Field(i), reflect.StructTag(t.Tag(i)).Get("json")
		name, options, _ := strings.Cut(tag, ",")
		inner, embeds := embedded(f)
		switch {
		case tag == "-":
		case name == "" && embeds:
			all = append(all, members(inner)...)
		case !f.Exported():
		default:
			if name == "" {
				name = f.Name()
			}
			if strings.Contains(options, "omit") {
				name += "?"
			}
			all = append(all, name+":"+word(f.Type()))
		}
	}
	return all
}

// embedded is the struct that a field embeds, if it does.
func embedded(f *types.Var) (*types.Struct, bool) {
	if !f.Embedded() {
		return nil, false
	}
	t := f.Type()
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	inner, ok := t.Underlying().(*types.Struct)
	return inner, ok
}

// word is what a field of a type looks like in JSON, as far as the type says.
func word(t types.Type) string {
	if n, ok := types.Unalias(t).(*types.Named); ok {
		if args := n.TypeArgs(); args != nil { // a field that may be left out
			var all []string
			for arg := range args.Types() {
				all = append(all, word(arg))
			}
			return "of(" + strings.Join(all, ",") + ")"
		}
		switch p := n.Obj().Pkg(); {
		case p == nil:
		case p.Path() == "time" && n.Obj().Name() == "Time":
			return "time"
		case p.Path() == "encoding/json" && n.Obj().Name() == "RawMessage":
			return "json"
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsUnsigned != 0:
			return "uint"
		case u.Info()&types.IsInteger != 0:
			return "int"
		case u.Info()&types.IsFloat != 0:
			return "float"
		}
		return u.Name()
	case *types.Pointer:
		return word(u.Elem())
	case *types.Slice:
		if b, ok := u.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.Uint8 {
			return "bytes"
		}
		return "[]" + word(u.Elem())
	case *types.Array:
		return "[]" + word(u.Elem())
	case *types.Map:
		return "{}" + word(u.Elem())
	case *types.Struct:
		return "object"
	}
	return "any"
}
