package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestEveryVerbArrivesAsItWasSent(t *testing.T) {
	for _, r := range law.Verbs {
		if !r.Wire {
			continue
		}
		for _, full := range []bool{false, true} {
			want := reflect.New(reflect.TypeOf(r.Zero())).Elem()
			if full {
				fill(want)
			}
			name, args, err := encodeVerb(want.Interface().(law.Verb))
			if err != nil || name != r.Name {
				t.Fatalf("%s: encoded as %q, %v", r.Name, name, err)
			}
			got, err := decodeVerb(name, args)
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
			if diff := cmp.Diff(want.Interface(), got); diff != "" {
				t.Errorf("%s: %s", r.Name, diff)
			}
		}
	}
}

// fill sets everything in v to something.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)))
		return
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.Set(reflect.ValueOf(json.RawMessage(`{"a":"<&>"}`)))
		return
	}
	switch v.Kind() { //nolint:exhaustive // no verb has the others
	case reflect.String:
		v.SetString("wörds <&> \u2028")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7.5)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("a verb has a " + v.Kind().String())
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, r := range law.Verbs {
		if !r.Wire {
			continue
		}
		full := reflect.New(reflect.TypeOf(r.Zero())).Elem()
		fill(full)
		_, args, err := encodeVerb(full.Interface().(law.Verb))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(dormouse.Encode(do{Session: "sesn_a", By: "user:ada", Verb: r.Name, Args: args})))
	}
	for _, s := range []string{"", "{}", "null", `{"verb":"tick"}`, `{"verb":"wake","args":{"x":1}}`, `{"verb":"wake","args":{}} {}`, `[`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req do
		err := decode(body, &req)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		v, err := decodeVerb(req.Verb, req.Args)
		if err != nil {
			if !errors.Is(err, errForeign) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		name, args, err := encodeVerb(v)
		if err != nil || name != req.Verb {
			t.Fatalf("taken as %q, %v", name, err)
		}
		again, err := decodeVerb(name, args)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		if _, once, err := encodeVerb(again); err != nil || !bytes.Equal(once, args) {
			t.Errorf("%s became %s, %v", args, once, err)
		}
	})
}

func FuzzDecodeLine(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", `{"upto":7}`, `{"delta":{"op":"op_a","text":"x"}}`, `{"end":{"type":"closing","message":"x"}}`,
		`{"event":{"seq":1,"id":"sevt_a","type":"user.message","actor":"user:ada","time":"2026-01-02T03:04:05Z","payload":{"a":[1,"<"]}}}`,
		`{"event":{"seq":0}}`, `{"event":null,"upto":-1}`, `{"upto":1}{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLine(b)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		once, err := encode(l)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeLine(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, %v", once, twice, err)
		}
	})
}

func TestWhatANewerServerAsksForIsNotTheClientsFault(t *testing.T) {
	for _, body := range []string{`{"verb":"levitate","args":{}}`, `{"verb":"wake","args":{"gently":true}}`} {
		var req do
		if err := decode([]byte(body), &req); err != nil {
			t.Fatal(err)
		}
		_, err := decodeVerb(req.Verb, req.Args)
		told := refusal{Type: replyTo(err).Type, Message: replyTo(err).Message}.asError(fleet.Server{Name: "older"})
		if !errors.Is(told, fleet.ErrUnreached) || errors.Is(told, dormouse.ErrInvalid) {
			t.Errorf("%s: the newer one is told %v", body, told)
		}
	}
}
