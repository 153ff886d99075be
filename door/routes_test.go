//go:build linux

package door_test

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse/internal/contract"
)

// saw notes something about a route. The caller holds mu.
func (w *witness) saw(r *http.Request, what string) {
	if w.routes == nil {
		w.routes = make(map[string]bool)
	}
	w.routes[r.Method+" "+r.Pattern+" "+what] = true
}

func (w *witness) sawFields(r *http.Request, what string, of reflect.Type) {
	for _, field := range contract.Fields(of) {
		w.saw(r, what+" "+field)
	}
}

// Every route takes the parameters and the fields, and answers with the fields, that it
// did in the version before. Each is called once with each of its samples; what it does
// not answer in that state is among the shapes of all JSON, beside cmd/dormouse.
func TestEveryRouteTakesAndAnswersWhatItDid(t *testing.T) {
	h := newServer(t)
	own := h.newTenantData(mine)
	for _, route := range h.routes {
		for _, method := range slices.Sorted(maps.Keys(route.Methods)) {
			chosen := samples[method+" "+route.Pattern]
			if chosen == nil {
				chosen = []sample{{}}
			}
			for _, s := range chosen {
				asked := own.own(method, route.Pattern, s)
				if own.has["sessions"] != "" {
					own.until(`"type":"session.status_idle"`) // what works is refused some of it
				}
				if got := own.ask(asked); method != http.MethodGet && got.status < 300 {
					own.renew()
				}
			}
		}
	}
	h.witness.mu.Lock()
	defer h.witness.mu.Unlock()
	contract.File{Path: "testdata/contract/routes.txt"}.Check(t, slices.Collect(maps.Keys(h.witness.routes)))
}
