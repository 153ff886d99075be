//go:build linux

package door_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/door/rest"
)

// tenantData is what one tenant has: one of everything, each made when it is first asked
// for. Both tenants give what they make the same names and keys.
type tenantData struct {
	*testServer
	tenant string
	has    map[string]string // by kind; the kinds are those of makers
}

// makers make what there is to have. A kind is called as the place in a path before
// its id is, or as its id is in a body.
func makers() map[string]func(*tenantData) string {
	return map[string]func(*tenantData) string{
		"sessions": func(e *tenantData) string {
			return e.post("/api/sessions", `{"warm":false,"title":"$canary","metadata":{"said":"$canary"},"tags":["$canary"],"prompt":"$canary","prompt_id":"first",
			"tools":`+everyTool()+`,"custom_tools":[{"name":"lookup","input_schema":{"type":"object"}}]}`, "session")
		},
		"children": func(e *tenantData) string {
			return e.post("/api/sessions", `{"warm":false,"title":"$canary","parent":"`+e.get("sessions")+`"}`, "session")
		},
		"threads": func(e *tenantData) string { return e.post(e.path("/threads"), `{"id":"name"}`, "id") },
		"wakeups": func(e *tenantData) string {
			return e.post(e.path("/wakeups"), `{"id":"name","in":"24h","prompt":"$canary"}`, "id")
		},
		// Of the prompts the first is taken up, and one waits behind a turn that waits.
		"prompt": func(e *tenantData) string { return e.until(`"type":"user.message"`) },
		"tool_use_id": func(e *tenantData) string {
			e.get("prompt")
			script := `SCRIPT[{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"true\"}},{\"name\":\"lookup\",\"input\":{}}]}]`
			e.post(e.path("/prompts"), `{"id":"second","content":"`+script+`"}`, "id")
			return e.until(`"type":"agent.tool_use"`)
		},
		"custom_tool_use_id": func(e *tenantData) string {
			e.get("tool_use_id")
			return e.until(`"type":"agent.custom_tool_use"`)
		},
		"queue": func(e *tenantData) string {
			e.get("tool_use_id")
			return e.post(e.path("/prompts"), `{"id":"third","content":"$canary"}`, "id")
		},
		"snapshots": func(e *tenantData) string {
			e.post(e.path("/execs"), `{"id":"file","command":"echo $canary >file"}`, "id")
			return e.post(e.path("/snapshots"), `{"id":"name","label":"$canary"}`, "snapshot")
		},
		"ref": func(e *tenantData) string {
			var s struct {
				Ref json.RawMessage `json:"ref"`
			}
			e.json(http.MethodGet, e.path("/snapshots/"+e.get("snapshots")), "", &s)
			return string(s.Ref)
		},
		"execs": func(e *tenantData) string {
			e.background(http.MethodPost, e.path("/execs"), `{"id":"name","command":"sleep 1000; : `+e.canary()+`"}`)
			id := dormouse.DeriveID(dormouse.EventPrefix, e.get("sessions"), "client", "name")
			e.until(id)
			return id
		},
		"terminals": func(e *tenantData) string {
			ws, res, err := websocket.Dial(e.t.Context(), e.url+e.path("/terminal"), &websocket.DialOptions{ //nolint:bodyclose // a WebSocket's answer has none
				HTTPClient: e.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + e.tenant}},
			})
			if err != nil {
				e.t.Fatal(err)
			}
			defer func() { _ = ws.CloseNow() }()
			return res.Header.Get(rest.TerminalID)
		},
		"ports": func(*tenantData) string { return "1" },
		"agents": func(e *tenantData) string {
			id := e.post("/v1/agents", `{"name":"$canary","model":"scripted"}`, "id")
			e.post("/v1/agents/"+id, `{"description":"$canary"}`, "id")
			return id
		},
		"environments": func(e *tenantData) string {
			return e.post("/v1/environments", fmt.Sprintf(`{"name":"name %d","description":"$canary"}`, e.count("environment")), "id")
		},
		"vaults": func(e *tenantData) string {
			return e.post("/v1/vaults", `{"display_name":"$canary","metadata":{"said":"$canary"}}`, "id")
		},
		"credentials": func(e *tenantData) string {
			return e.post("/v1/vaults/"+e.get("vaults")+"/credentials", `{"display_name":"$canary","auth":{"type":"mcp_oauth","mcp_server_url":"https://mcp.example.com/$canary",
			"access_token":"$canary","refresh":{"refresh_token":"$canary","token_endpoint":"https://id.example.com","client_id":"$canary","token_endpoint_auth":{"type":"none"}}}}`, "id")
		},
		"models": func(*tenantData) string { return "scripted" },
	}
}

// everyTool is all of them, of which one asks before it does anything.
func everyTool() string {
	var all []dormouse.ToolConfig
	for _, name := range tool.Builtin().Names() {
		c := dormouse.ToolConfig{Name: name, Permission: dormouse.PermissionAllow}
		if name == "bash" {
			c.Permission = dormouse.PermissionAsk
		}
		all = append(all, c)
	}
	return string(mustJSON(all))
}

// notTheirs are kinds whose values belong to no tenant.
var notTheirs = []string{"ports", "models"}

var inJSON = http.Header{"Content-Type": {"application/json"}}

func (h *testServer) newTenantData(tenant string) *tenantData {
	return &tenantData{testServer: h, tenant: tenant, has: make(map[string]string)}
}

// canary is a word that only the tenant uses.
func (e *tenantData) canary() string { return "canary-of-" + e.tenant }

// get is the tenant's thing of a kind.
func (e *tenantData) get(kind string) string {
	e.t.Helper()
	if e.has[kind] == "" {
		maker := makers()[kind]
		if maker == nil {
			e.t.Fatalf("nobody knows how to make one of %q; add it to makers", kind)
		}
		id := maker(e)
		if id == "" {
			e.t.Fatalf("%s has no %s", e.tenant, kind)
		}
		e.has[kind] = id
	}
	return e.has[kind]
}

// count numbers what a tenant makes of a kind.
func (e *tenantData) count(kind string) int {
	key := "count " + kind
	n := len(e.has[key])
	e.has[key] += "|"
	return n
}

// renew has everything made anew.
func (e *tenantData) renew() {
	if e.has["sessions"] != "" && e.tenant == mine { // with its sandbox, so that there are few
		e.background(http.MethodDelete, e.path(""), "")
	}
	counted := e.has["count environment"]
	clear(e.has)
	e.has["count environment"] = counted
}

// everything makes all there is, and returns every id with its kind.
func (e *tenantData) everything() map[string]string {
	for _, kind := range slices.Sorted(maps.Keys(makers())) {
		e.get(kind)
	}
	all := make(map[string]string)
	for kind, id := range e.has {
		if !slices.Contains(notTheirs, kind) && !strings.HasPrefix(kind, "count ") {
			all[kind] = id
		}
	}
	// One of each kind of id that only the log names.
	for _, prefix := range []string{dormouse.OpPrefix, dormouse.TurnPrefix} {
		b := string(e.send(e.tenant, http.MethodGet, e.path("/events?all=true&limit=1000"), nil, nil).body)
		if _, rest, ok := strings.Cut(b, `"`+prefix); ok {
			id, _, _ := strings.Cut(rest, `"`)
			all[prefix] = prefix + id
		}
	}
	return all
}

func (e *tenantData) path(below string) string { return "/api/sessions/" + e.get("sessions") + below }

// json asks for what must be given, and decodes it.
func (e *tenantData) json(method, path, body string, into any) {
	e.t.Helper()
	body = strings.ReplaceAll(body, "$canary", e.canary())
	got := e.send(e.tenant, method, path, []byte(body), inJSON)
	if got.status > 299 {
		e.t.Fatalf("%s %s %s as %s: %d %s", method, path, body, e.tenant, got.status, got.body)
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		e.t.Fatal(err)
	}
}

// post makes something and returns its id.
func (e *tenantData) post(path, body, field string) string {
	e.t.Helper()
	var made map[string]any
	e.json(http.MethodPost, path, body, &made)
	id, _ := made[field].(string)
	return id
}

// background asks for something that is answered when it is ended, or when the server
// goes.
func (e *tenantData) background(method, path, body string) {
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + e.tenant}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := e.http.Do(r); err == nil {
			_ = res.Body.Close()
		}
	}()
	e.t.Cleanup(func() { <-done })
}

// until waits for the first event that says something, and returns its id.
func (e *tenantData) until(says string) string {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var page struct {
			Events []json.RawMessage `json:"events"`
		}
		e.json(http.MethodGet, e.path("/events?all=true&limit=1000"), "", &page)
		for _, raw := range page.Events {
			var event struct {
				ID string `json:"id"`
			}
			if bytes.Contains(raw, []byte(says)) && json.Unmarshal(raw, &event) == nil {
				return event.ID
			}
		}
	}
	e.t.Fatalf("no event says %s", says)
	return ""
}
