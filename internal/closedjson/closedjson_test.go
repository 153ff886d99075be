package closedjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

type common struct {
	Enabled closedjson.Optional[bool] `json:"enabled"`
}

type tool struct {
	common
	Name string `json:"name"`
}

// size is a number or a word.
type size struct{ N int }

func (s *size) DecodeJSON(raw []byte) error {
	if raw[0] != '"' {
		return closedjson.Bind(raw, &s.N)
	}
	var word string
	if err := closedjson.Bind(raw, &word); err != nil {
		return err
	}
	if word != "large" {
		return closedjson.Errorf("must be large")
	}
	s.N = 100
	return nil
}

type document struct {
	Name  string                               `json:"name"`
	Note  closedjson.Optional[string]          `json:"note"`
	Size  closedjson.Optional[size]            `json:"size"`
	Tools closedjson.Optional[[]tool]          `json:"tools"`
	Data  closedjson.Optional[map[string]int]  `json:"data"`
	Raw   closedjson.Optional[json.RawMessage] `json:"raw"`
	Count closedjson.Omittable[int]            `json:"count"`
}

func TestFieldsKnowWhetherTheyWereLeftOutNullOrGiven(t *testing.T) {
	var d document
	err := closedjson.Unmarshal([]byte(` { "name":"a\u00e9\"", "note":null, "size" : "large",
		"tools":[{"name":"x","enabled":false},{"name":"y"}], "data":{"a":1,"b":-2}, "raw": {"k": [1, {"z":"]}"}]}, "count":3 } `), &d)
	if err != nil {
		t.Fatal(err)
	}
	want := document{
		Name: `aé"`, Note: closedjson.Optional[string]{Set: true, Null: true}, Size: closedjson.Some(size{100}),
		Tools: closedjson.Some([]tool{{common{closedjson.Some(false)}, "x"}, {common{}, "y"}}),
		Data:  closedjson.Some(map[string]int{"a": 1, "b": -2}),
		Raw:   closedjson.Some(json.RawMessage(`{"k": [1, {"z":"]}"}]}`)),
		Count: closedjson.Omittable[int]{Set: true, Value: 3},
	}
	if diff := cmp.Diff(want, d, cmp.AllowUnexported(tool{}, common{})); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsSayWhere(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for body, want := range map[string]string{
		``:                                 "not JSON at byte 0: unexpected end of JSON input",
		`{"name":"a"`:                      "not JSON at byte 11: unexpected end of JSON input",
		`{"name":"a"} {}`:                  "not JSON at byte 14: invalid character '{' after top-level value",
		`{"name":}`:                        "not JSON at byte 9: invalid character '}' looking for beginning of value",
		`[]`:                               "must be an object, not a list",
		`null`:                             "must be an object, not null",
		`{}`:                               "name: is required",
		`{"name":"a","count":null}`:        "count: must not be null; leave it out",
		`{"name":null}`:                    "name: must be a string, not null",
		`{"name":7}`:                       "name: must be a string, not 7",
		`{"Name":"a"}`:                     "Name: there is no such field",
		`{"name":"a","name":"b"}`:          "name: is given twice",
		`{"name":"a","n\u0061me":"b"}`:     "name: is given twice",
		`{"name":"a","raw":{"x":1,"x":2}}`: "raw.x: is given twice",
		`{"name":"a\u0000"}`:               "name: has a NUL character",
		`{"name":"a","tools":[{"name":"x"},{"nane":"x"}]}`:    "tools[1].nane: there is no such field",
		`{"name":"a","tools":[{"name":"x","enabled":"yes"}]}`: "tools[0].enabled: must be true or false, not a string",
		`{"name":"a","tools":[null]}`:                         "tools[0]: must be an object, not null",
		`{"name":"a","tools":{}}`:                             "tools: must be a list, not an object",
		`{"name":"a","data":{"k":1.5}}`:                       "data.k: must be a whole number, not 1.5",
		`{"name":"a","data":{"k":99999999999999999999}}`:      "data.k: must be a whole number, not 99999999999999999999",
		`{"name":"a","size":"small"}`:                         "size: must be large",
		`{"name":"a","raw":` + deep + `}`:                     "raw: values lie more than 128 deep in each other",
		"{\"name\":\"\xff\"}":                                 "the JSON is not valid UTF-8",
	} {
		var d document
		if err := closedjson.Unmarshal([]byte(body), &d); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
}

func TestMember(t *testing.T) {
	raw := []byte(`{"a" : [1] ,"type": "x"}`)
	if got := closedjson.Member(raw, "type"); string(got) != `"x"` {
		t.Errorf("got %s", got)
	}
	if got := closedjson.Member(raw, "b"); got != nil {
		t.Errorf("got %s", got)
	}
}

// FuzzUnmarshal holds that whatever is taken is taken as encoding/json takes it.
func FuzzUnmarshal(f *testing.F) {
	f.Add(`{"name":"a","note":null,"tools":[{"name":"x","enabled":true}],"data":{"a":1},"raw":[1,"\\\"",{}]}`)
	f.Add(`{"name":"\ud800","size":"large"}`)
	f.Add(`{"name":` + strings.Repeat("[", 300))
	f.Fuzz(func(t *testing.T, body string) {
		var d document
		if closedjson.Unmarshal([]byte(body), &d) != nil {
			return
		}
		var same struct {
			Name string          `json:"name"`
			Note *string         `json:"note"`
			Data map[string]int  `json:"data"`
			Raw  json.RawMessage `json:"raw"`
		}
		if err := json.Unmarshal([]byte(body), &same); err != nil {
			t.Fatalf("taken, but it is not JSON: %v", err)
		}
		if d.Name != same.Name || d.Note.Given() != (same.Note != nil) || len(d.Data.Value) != len(same.Data) {
			t.Fatalf("%+v is not %+v", d, same)
		}
		if d.Raw.Given() && string(d.Raw.Value) != string(same.Raw) {
			t.Fatalf("%s is not %s", d.Raw.Value, same.Raw)
		}
	})
}
