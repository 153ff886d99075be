//go:build linux

package door_test

import (
	"net/http"
	"testing"
)

// Equal names of two tenants mean different things: names, keys and ids that a client
// gives belong to its tenant, and lead no other tenant to what it made.
func TestNamesThatClientsGiveAreTheirTenants(t *testing.T) {
	h := newServer(t)
	data := map[string]*tenantData{theirs: h.newTenantData(theirs), mine: h.newTenantData(mine)}
	all := map[string]map[string]string{theirs: data[theirs].everything(), mine: data[mine].everything()}
	for kind, id := range all[theirs] {
		if all[mine][kind] == id {
			t.Errorf("%s of both is %s", kind, id)
		}
	}
	var image []byte
	ids := make(map[string]string) // what was made, and whose it is
	for _, tenant := range []string{theirs, mine} {
		e := data[tenant]
		if image == nil {
			image = e.send(tenant, http.MethodGet, e.path("/snapshots/"+e.get("snapshots")+"/export"), nil, nil).body
		}
		for name, send := range map[string]func() reply{
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
			first, again := send(), send()
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
