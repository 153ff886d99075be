//go:build linux

package door_test

import (
	"net/http"
	"testing"
)

// What tenants call alike is not the same: names, keys and ids that a client gives are
// its tenant's, and lead nobody to what another made.
func TestNamesThatClientsGiveAreTheirTenants(t *testing.T) {
	h := newHouse(t)
	estates := map[string]*estate{theirs: h.estate(theirs), mine: h.estate(mine)}
	all := map[string]map[string]string{theirs: estates[theirs].everything(), mine: estates[mine].everything()}
	for kind, id := range all[theirs] {
		if all[mine][kind] == id {
			t.Errorf("%s of both is %s", kind, id)
		}
	}
	var image []byte
	ids := make(map[string]string) // what was made, and whose it is
	for _, tenant := range []string{theirs, mine} {
		e := estates[tenant]
		if image == nil {
			image = e.send(tenant, http.MethodGet, e.path("/snapshots/"+e.get("snapshots")+"/export"), nil, nil).body
		}
		for name, make := range map[string]func() reply{
			"import": func() reply {
				return e.send(tenant, http.MethodPost, "/api/sessions/import?id=name&label=name", image, http.Header{"Content-Type": {"application/x-tar"}})
			},
			"a session by its key": func() reply {
				return e.send(tenant, http.MethodPost, "/v1/sessions", []byte(`{"agent":"`+e.get("agents")+`","environment_id":"`+e.get("environments")+`"}`),
					http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"key"}})
			},
			"events by their key": func() reply {
				return e.send(tenant, http.MethodPost, "/v1/sessions/"+e.get("sessions")+"/events", []byte(`{"events":[{"type":"user.message","content":[{"type":"text","text":"x"}]}]}`),
					http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"key"}})
			},
		} {
			first, again := make(), make()
			id := anyID.FindString(string(first.body))
			if first.status > 299 || id == "" || anyID.FindString(string(again.body)) != id {
				t.Errorf("%s of %s: %d %s, and again %d %s", name, tenant, first.status, first.body, again.status, again.body)
			}
			if whose, taken := ids[id]; taken {
				t.Errorf("%s of %s is %s, which is that of %s", name, tenant, id, whose)
			}
			ids[id] = tenant
		}
	}
}
