package closedjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// plain is an ordinary Go type.
type plain struct {
	Name  string          `json:"name"`
	Inner struct{ N int } `json:"inner"`
	Raw   json.RawMessage `json:"raw"`
	Tags  []string        `json:"tags"`
}

func TestDecodeTakesOneValueWithoutUnknownNames(t *testing.T) {
	for body, want := range map[string]string{
		` {"name":"a"} `:         "",
		`{"NAME":"a"}`:           "",
		`{"nane":"a"}`:           `json: unknown field "nane"`,
		`{"inner":{"M":1}}`:      `json: unknown field "M"`,
		`{"name":"a"} {}`:        closedjson.ErrTrailing.Error(),
		`{"name":"a"}}`:          closedjson.ErrTrailing.Error(),
		`{"name":"a"} word`:      closedjson.ErrTrailing.Error(),
		"{\"name\":\"a\"}\u00a0": closedjson.ErrTrailing.Error(), // no space of JSON
		`{"name":`:               "unexpected EOF",
	} {
		var v plain
		switch err := closedjson.Decode([]byte(body), &v); {
		case want == "" && (err != nil || v.Name != "a"):
			t.Errorf("%s is %+v, %v", body, v, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

func TestDecodePrefixLeavesTheRest(t *testing.T) {
	var v plain
	const body = `{"name":"a"} and more`
	if n, err := closedjson.DecodePrefix([]byte(body), &v); err != nil || body[n:] != " and more" {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestDecodeObjectSaysWhatIsWrong(t *testing.T) {
	const depth = 20
	for body, want := range map[string]string{
		`{"name":"a","raw":[1,{"b":-1.5e3}],"inner":{"n":1}}`: "",
		`{"name":"\\u0000"}`:            "",
		`[]`:                            "must be an object, not a list",
		`null`:                          "must be an object, not null",
		` 7 `:                           "must be an object, not 7",
		`{} {}`:                         "not JSON at byte 4: invalid character '{' after top-level value",
		`{"name":1}`:                    "name: must be a string, not number",
		`{"tags":["a",1]}`:              "tags: must be a string, not number",
		`{"inner":{"N":"1"}}`:           "inner.N: must be a number, not string",
		`{"Name":"a"}`:                  "Name: there is no such field",
		`{"inner":{"M":1}}`:             "M: there is no such field",
		`{"name":"a","name":"b"}`:       "name: is given twice",
		`{"raw":{"a":[{"b":1,"b":2}]}}`: "raw.a.b: is given twice",
		`{"name":"\u0000"}`:             "name: has a NUL character",
		`{"name":"\\\u0000"}`:           "name: has a NUL character",
		`{"na\u0000me":""}`:             "has a NUL character",
		"{\"name\":\"\xff\"}":           "the JSON is not valid UTF-8",
		`{"raw":1e999}`:                 "raw: must be a number that a float can hold, not 1e999",
		`{"raw":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`: "raw: values lie more than 20 deep in each other",
		`{"raw":` + strings.Repeat("[", 1<<20):                                    "values lie more than 20 deep in each other",
		`{"raw":"` + strings.Repeat("[", depth):                                   "not JSON at byte 28: unexpected end of JSON input",
	} {
		var v plain
		err := closedjson.DecodeObject([]byte(body), &v, depth)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%.60s: %v, want %s", body, err, want)
		}
		if _, ok := errors.AsType[*closedjson.Error](err); err != nil && !ok {
			t.Errorf("%.60s: the error is a %T", body, err)
		}
	}
}

func TestMembersAreOfOneObject(t *testing.T) {
	all, err := closedjson.Members([]byte(` {"a": {"x":1,"x":2} , "A":"b"} `))
	if err != nil || len(all) != 2 || string(all["a"]) != `{"x":1,"x":2}` || string(all["A"]) != `"b"` {
		t.Errorf("%s, %v", all, err)
	}
	for _, body := range []string{``, `[]`, `{"a":1,"\u0061":2}`, "{\"\xff\":1,\"\xfe\":2}", `{"a":1}}`, `{"a":1} {}`, `{"a"}`} {
		if all, err := closedjson.Members([]byte(body)); err == nil {
			t.Errorf("%s is %s", body, all)
		}
	}
}

// FuzzDecodeObject holds that whatever is taken is taken as encoding/json takes it.
func FuzzDecodeObject(f *testing.F) {
	f.Add(`{"name":"a","raw":[1,"\\\"",{}],"inner":{"n":1},"tags":["x"]}`)
	f.Add(`{"name":"\ud800","raw":1e999}`)
	f.Add(`{"raw":` + strings.Repeat("[", 300))
	f.Fuzz(func(t *testing.T, body string) {
		var v, same plain
		if closedjson.DecodeObject([]byte(body), &v, 100) != nil {
			return
		}
		if err := json.Unmarshal([]byte(body), &same); err != nil {
			t.Fatalf("taken, but it is not JSON: %v", err)
		}
		if v.Name != same.Name || v.Inner != same.Inner || string(v.Raw) != string(same.Raw) || len(v.Tags) != len(same.Tags) {
			t.Fatalf("%+v is not %+v", v, same)
		}
		var all any
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatalf("taken, but nobody can read all of it: %v", err)
		}
	})
}
