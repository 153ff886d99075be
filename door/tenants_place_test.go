//go:build linux

package door_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/session"
)

// sample is a request that is right as far as ids are not concerned. A text that is
// "$" and a kind stands for an id of that kind.
type sample struct {
	query string
	body  string
}

// place is where in a request an id may stand: "path", "query" or "body", and the name
// there. kind is what is expected there; empty if it is unknown.
type place struct{ in, name, kind string }

func (p place) String() string { return p.in + " " + p.name }

// asked is a request to a route, in which every id has its place.
type asked struct {
	method, pattern string
	sample          sample
	ids             map[place]string
}

var placeholder = regexp.MustCompile(`([^/]*)/\{([^}]+)\}`)

// pathPlaces are those of a pattern. What stands before an id says what it is of.
func pathPlaces(pattern string) []place {
	var all []place
	for _, m := range placeholder.FindAllStringSubmatch(pattern, -1) {
		kind := m[1]
		if makers()[kind] == nil {
			kind = ""
		}
		all = append(all, place{"path", strings.TrimSuffix(m[2], "..."), kind})
	}
	return all
}

var reference = regexp.MustCompile(`\$[a-z_]+`)

// samplePlaces are those of a sample.
func (s sample) places() []place {
	var all []place
	values, _ := url.ParseQuery(s.query)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if kind, ok := strings.CutPrefix(values.Get(name), "$"); ok {
			all = append(all, place{"query", name, kind})
		}
		all = append(all, documentPlaces("query", name+":", values.Get(name))...)
	}
	all = append(all, documentPlaces("body", "", s.body)...)
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// documentPlaces are those of a JSON document, if it is one.
func documentPlaces(in, under, document string) (all []place) {
	var v any
	if json.Unmarshal([]byte(document), &v) != nil {
		return nil
	}
	walk(v, "", func(at, text string) string {
		if reference.FindString(text) == text && text != "" {
			all = append(all, place{in, under + at, text[1:]})
		}
		return text
	})
	return all
}

// fill puts the ids of places into a JSON document.
func (a asked) fill(in, under, document string) string {
	var v any
	if json.Unmarshal([]byte(document), &v) != nil {
		return document
	}
	return string(mustJSON(walk(v, "", func(at, text string) string {
		for p, id := range a.ids {
			if p.in == in && p.name == under+at {
				return id
			}
		}
		return text
	})))
}

// walk changes every text of a JSON value.
func walk(v any, at string, change func(at, text string) string) any {
	switch v := v.(type) {
	case string:
		return change(at, v)
	case []any:
		for i := range v {
			v[i] = walk(v[i], fmt.Sprintf("%s[%d]", at, i), change)
		}
	case map[string]any:
		for name := range v {
			v[name] = walk(v[name], strings.TrimPrefix(at+"."+name, "."), change)
		}
	}
	return v
}

// own is a request in which all is the tenant's.
func (e *tenantData) own(method, pattern string, s sample) asked {
	e.t.Helper()
	a := asked{method, pattern, s, make(map[place]string)}
	for _, p := range slices.Concat(pathPlaces(pattern), s.places()) {
		kind := p.kind
		if kind == "" {
			kind = "sessions"
		}
		a.ids[p] = e.get(kind)
	}
	return a
}

// with is a request with another id in a place.
func (a asked) with(p place, id string) asked {
	a.ids = maps.Clone(a.ids)
	a.ids[p] = id
	return a
}

// upgrade lets a request be one for a WebSocket, where that is what there is.
var upgrade = http.Header{
	"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
}

// ask sends a request as the tenant.
func (e *tenantData) ask(a asked) reply {
	e.t.Helper()
	path := a.pattern
	query, err := url.ParseQuery(a.sample.query)
	if err != nil {
		e.t.Fatal(err)
	}
	for p, id := range a.ids {
		switch p.in {
		case "path":
			path = regexp.MustCompile(`\{`+p.name+`(\.\.\.)?\}`).ReplaceAllLiteralString(path, url.PathEscape(id))
		case "query":
			if name, _, within := strings.Cut(p.name, ":"); !within {
				query.Set(p.name, id)
			} else {
				query.Set(name, a.fill("query", name+":", query.Get(name)))
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	header := http.Header{}
	if a.method == http.MethodGet {
		header = upgrade
	}
	if a.sample.body == "" {
		return e.send(e.tenant, a.method, path, nil, header)
	}
	if !strings.HasPrefix(a.sample.body, "{") {
		return e.send(e.tenant, a.method, path, []byte(a.sample.body), http.Header{"Content-Type": {"application/x-tar"}})
	}
	return e.send(e.tenant, a.method, path, []byte(a.fill("body", "", a.sample.body)), inJSON)
}

// never is an id as this one that nothing has.
func never(id string) string {
	if strings.HasPrefix(id, "{") { // a ref: another for each id in it
		return anyID.ReplaceAllStringFunc(id, never)
	}
	other := session.NewID(id[:strings.LastIndex(id, "_")+1])
	for len(other) < len(id) { // a cursor
		other += session.NewID("")
	}
	return other[:len(id)]
}

var manyIDs = regexp.MustCompile(`(ID)+`)

var anyID = regexp.MustCompile(`\b(sesn|sthr|sevt|turn|op|snap|wake|agent|env|term|req)_[0-9A-Za-z]{8,}`)

// said is what a reply says, apart from what of it was asked for, or the beginning of
// that where it is too long to be told whole. Of other ids it tells the kind.
func (a asked) said(r reply) string {
	text := string(r.body)
	sent := slices.Collect(maps.Values(a.ids))
	slices.SortFunc(sent, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	for _, id := range sent {
		const shortest = 10
		quoted := strings.Trim(string(mustJSON(id)), `"`)
		twice := strings.Trim(string(mustJSON(quoted)), `"`)
		for _, part := range append([]string{id, quoted, twice}, anyID.FindAllString(id, -1)...) {
			for n := len(part); n >= shortest; n-- {
				text = strings.ReplaceAll(text, part[:n], "ID")
			}
		}
	}
	return anyID.ReplaceAllString(manyIDs.ReplaceAllString(text, "ID"), "$1")
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// kindOfType is what an id of a type is of.
var kindOfType = map[string]string{
	"SessionID": "sessions", "ThreadID": "threads", "EventID": "prompt", "SnapshotID": "snapshots", "WakeupID": "wakeups",
}

// typedFields are the fields of a body that are ids by their type, wherever they lie.
func typedFields(t reflect.Type, at string, seen []reflect.Type) map[string]string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	all := make(map[string]string)
	if kind, ok := kindOfType[t.Name()]; ok && strings.HasSuffix(t.PkgPath(), "/dormouse") && at != "" {
		all[at] = kind
	}
	if t.Kind() != reflect.Struct || slices.Contains(seen, t) {
		return all
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(all, typedFields(f.Type, at, append(seen, t)))
		case name != "" && name != "-":
			maps.Copy(all, typedFields(f.Type, strings.TrimPrefix(at+"."+name, "."), append(seen, t)))
		}
	}
	return all
}
