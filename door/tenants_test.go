//go:build linux

package door_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/store"
)

// trial calls every route as one tenant with the ids of another in every place.
type trial struct {
	*testServer
	their, own *tenantData
	ids        map[string]string // of theirs, by kind
	secret     []string          // what of theirs no other tenant may be told
	leaks      []string
	unreached  map[string]string // places whose id nothing depends on, and what was seen
	reached    map[string]bool
	routes     int
	forgeries  int
	places     map[string]bool
	differ     map[string]bool // places where never is not a 404
}

// Every id of another tenant is an id of nothing, in every place of every route that
// there is.
func TestAnIDOfAnotherTenantIsAnIDOfNothing(t *testing.T) {
	tr := newTrial(newServer(t))
	tr.run()
	for _, text := range tr.leaks {
		t.Error(text)
	}
	for at, seen := range tr.unreached {
		if !tr.reached[at] {
			t.Errorf("%s: give the route a sample that gets as far as the id, or say in otherwise why it is no 404: %s", at, seen)
		}
	}
	for at := range otherwise {
		if !tr.differ[at] {
			t.Errorf("%s is said to be no 404, and is one or is not there", at)
		}
	}
	for at := range samples {
		if !tr.places["sample "+at] {
			t.Errorf("there is a sample of %s, and no such route", at)
		}
	}
	for key, tried := range fields {
		if strings.HasPrefix(tried, "POST /") && !tr.reached[tried] {
			t.Errorf("%s is said to be tried at %q, which is no place", key, tried)
		}
	}
	places := 0
	for at := range tr.places {
		if !strings.HasPrefix(at, "sample ") {
			places++
		}
	}
	const lists = 3
	if tr.forgeries < lists {
		t.Errorf("only %d lists had a cursor to forge", tr.forgeries)
	}
	t.Logf("tenants: routes=%d places=%d leaks=%d", tr.routes, places, len(tr.leaks))
}

func newTrial(h *testServer) *trial {
	tr := &trial{
		testServer: h, their: h.newTenantData(theirs), own: h.newTenantData(mine), places: make(map[string]bool), differ: make(map[string]bool),
		unreached: make(map[string]string), reached: make(map[string]bool),
	}
	for range 2 { // so that lists of theirs have a second page
		tr.their.renew()
		tr.ids = tr.their.everything()
		tr.secret = append(tr.secret, slices.Collect(maps.Values(tr.ids))...)
	}
	tr.secret = append(tr.secret, tr.their.canary())
	for range 3 { // and lists of the caller's
		tr.own.renew()
		tr.own.get("agents")
		tr.own.get("environments")
		tr.own.get("vaults")
		tr.own.post("/api/sessions", `{"warm":false}`, "session")
	}
	return tr
}

func (tr *trial) run() {
	tr.t.Helper()
	before := tr.settled()
	for _, route := range tr.testServer.routes {
		for _, method := range slices.Sorted(maps.Keys(route.Methods)) {
			tr.routes++
			at := method + " " + route.Pattern
			chosen := samples[at]
			if tr.places["sample "+at] = chosen != nil; chosen == nil {
				delete(tr.places, "sample "+at)
				chosen = []sample{{}}
			}
			for _, s := range chosen {
				tr.route(method, route.Pattern, s)
			}
		}
	}
	if after := tr.world(); before != after {
		tr.leak("what is theirs has changed:\n%s\n%s", before, after)
	}
}

func (tr *trial) leak(format string, args ...any) {
	tr.leaks = append(tr.leaks, fmt.Sprintf(format, args...))
}

// world is what the other tenant has.
func (tr *trial) world() string {
	tr.t.Helper()
	rows, err := tr.store.Sessions(tr.t.Context(), store.Query{Tenant: theirs, Archived: true, Limit: 1000})
	if err != nil {
		tr.t.Fatal(err)
	}
	all := []any{rows}
	refs, err := tr.store.DocumentRefs(tr.t.Context(), store.DocumentRef{Tenant: theirs}, 1000)
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, ref := range refs {
		if ref.Tenant != theirs {
			continue
		}
		d, err := tr.store.Document(tr.t.Context(), ref)
		if err != nil {
			tr.t.Fatal(err)
		}
		all = append(all, d, string(d.Body))
	}
	return string(mustJSON(all))
}

// settled waits until what the other tenant has does not change by itself.
func (tr *trial) settled() string {
	for was := tr.world(); ; {
		time.Sleep(500 * time.Millisecond)
		now := tr.world()
		if now == was {
			return now
		}
		was = now
	}
}

// route tries every place of a route.
func (tr *trial) route(method, pattern string, s sample) {
	tr.t.Helper()
	at := method + " " + pattern
	own := tr.own.own(method, pattern, s)
	tr.witness.take()
	control := tr.own.ask(own)
	params, bodies := tr.witness.take()
	tr.renew(method, control)

	places := slices.Concat(pathPlaces(pattern), s.places())
	for _, p := range places {
		tr.known(own, p, control)
	}
	for _, name := range params {
		if p := (place{"query", name, ""}); !slices.ContainsFunc(places, func(k place) bool { return k.in == p.in && k.name == name }) {
			places = append(places, p)
		}
	}
	for _, p := range places {
		tr.places[at+" "+p.String()] = true
		tr.try(method, pattern, s, p)
		if strings.HasSuffix(pattern, "/terminal") {
			tr.own.renew() // each try leaves a terminal, and a session has only so many
		}
	}
	for field, kind := range tr.missing(at, s, bodies) {
		var body map[string]any
		_ = json.Unmarshal([]byte(s.body), &body)
		if body == nil {
			body = make(map[string]any)
		}
		body[field] = "$" + kind
		more := s
		more.body = string(mustJSON(body))
		tr.route(method, pattern, more)
	}
}

// missing are the fields of bodies that are ids by their type, and in no sample.
func (tr *trial) missing(at string, s sample, bodies []reflect.Type) map[string]string {
	all := make(map[string]string)
	for _, t := range bodies {
		maps.Copy(all, typedFields(t, "", nil))
	}
	for _, s := range append(samples[at], s) {
		for _, p := range s.places() {
			delete(all, p.name[strings.LastIndex(p.name, ":")+1:])
		}
	}
	return all
}

// renew has the caller have everything again after what may have changed it.
func (tr *trial) renew(method string, r reply) {
	if method != http.MethodGet && r.status < 300 {
		tr.own.renew()
	}
}

// known tests a place whose kind of value is known: what the caller owns is found
// there, and what does not exist is not.
func (tr *trial) known(own asked, p place, control reply) {
	tr.t.Helper()
	if p.kind == "" || slices.Contains(notTheirs, p.kind) {
		return
	}
	at := own.method + " " + own.pattern + " " + p.String()
	asked := tr.own.own(own.method, own.pattern, own.sample).with(p, never(own.ids[p]))
	none := tr.own.ask(asked)
	tr.renew(own.method, none)
	want, ok := otherwise[at]
	if !ok {
		want.status = http.StatusNotFound
	}
	switch same := none.status == control.status && asked.said(none) == own.said(control); {
	case none.status != want.status:
		tr.unreached[at] = fmt.Sprintf("an id of nothing is told %d %s", none.status, none.body)
	case same && want.status == http.StatusNotFound:
		tr.unreached[at] = fmt.Sprintf("what the caller has is told as what nobody has: %d %s", control.status, control.body)
	default:
		tr.reached[at], tr.differ[at] = true, tr.differ[at] || ok
	}
}

// try calls a route with everything of theirs in one place.
func (tr *trial) try(method, pattern string, s sample, p place) {
	tr.t.Helper()
	ids := maps.Clone(tr.ids)
	if p.in == "query" {
		if method != http.MethodGet {
			ids = map[string]string{"sessions": ids["sessions"], "snapshots": ids["snapshots"]}
		}
		if cursor := tr.cursor(tr.their, method, pattern, s); cursor != "" {
			ids["cursor"] = cursor
		}
		tr.forged(method, pattern, s, p)
	}
	for _, kind := range slices.Sorted(maps.Keys(ids)) {
		tr.compare(method, pattern, s, p, ids[kind], false)
		if p.in == "path" && strings.Count(pattern, "{") > 1 {
			tr.compare(method, pattern, s, p, ids[kind], true)
		}
	}
}

// compare calls a route with an id of theirs and with one of nothing, and finds no
// difference. With along the other ids of the path are theirs too.
func (tr *trial) compare(method, pattern string, s sample, p place, id string, along bool) {
	tr.t.Helper()
	ask := func(id string) (asked, reply) {
		a := tr.own.own(method, pattern, s)
		for other := range a.ids {
			if theirs, ok := tr.ids[other.kind]; along && ok && other.in == "path" {
				a.ids[other] = theirs
			}
		}
		a = a.with(p, id)
		got := tr.own.ask(a)
		tr.renew(method, got)
		return a, got
	}
	sent, got := ask(id)
	other, want := ask(never(id))
	at := fmt.Sprintf("%s %s %s = %s", method, pattern, p, id)
	if got.status != want.status || got.status >= 400 && sent.said(got) != other.said(want) {
		tr.leak("%s: got %d %s, and for what is not there %d %s", at, got.status, cut(sent.said(got)), want.status, cut(other.said(want)))
	}
	text := fmt.Sprint(got.header) + string(got.body)
	for _, secret := range tr.secret {
		if slices.ContainsFunc(slices.Collect(maps.Values(sent.ids)), func(id string) bool { return strings.Contains(id, secret) }) {
			continue // was said by the caller
		}
		if strings.Contains(text, secret) {
			tr.leak("%s: the answer holds %s: %d %s", at, secret, got.status, cut(text))
		}
	}
}

func cut(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
