package v1_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

type page struct {
	Data []struct{ ID, Name string }
	Next *string `json:"next_page"`
}

func (h *testServer) page(path string) page {
	h.t.Helper()
	status, body := h.do("GET", path, "")
	var p page
	if err := json.Unmarshal([]byte(body), &p); status != 200 || err != nil {
		h.t.Fatalf("%s: %d %s", path, status, body)
	}
	return p
}

func TestListsGoOnWithTheirCursorAlone(t *testing.T) {
	h := newServer(t)
	for i := range 5 {
		if status, body := h.do("POST", "/v1/agents", fmt.Sprintf(`{"name":"agent %d","model":"m"}`, i)); status != 200 {
			t.Fatal(body)
		}
	}
	h.do("POST", "/v1/environments", `{"name":"e"}`)
	var names []string
	path := "/v1/agents?limit=2"
	for {
		p := h.page(path)
		for _, a := range p.Data {
			names = append(names, a.Name)
		}
		if p.Next == nil {
			break
		}
		path = "/v1/agents?limit=2&page=" + url.QueryEscape(*p.Next)
	}
	if strings.Join(names, ",") != "agent 4,agent 3,agent 2,agent 1,agent 0" {
		t.Errorf("got %v", names)
	}
	next := url.QueryEscape(*h.page("/v1/agents?limit=2").Next)
	for _, wrong := range []string{
		"/v1/agents?limit=2&include_archived=true&page=" + next, "/v1/environments?page=" + next, "/v1/agents?page=" + next + "x",
		"/v1/agents?limit=101", "/v1/environments?limit=0", "/v1/agents?created_at[gte]=monday", "/v1/agents/x?version=-1",
	} {
		if status, body := h.do("GET", wrong, ""); status != 400 {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
	soon := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
	if p := h.page("/v1/agents?created_at%5Bgte%5D=" + soon); len(p.Data) != 0 || p.Next != nil {
		t.Errorf("got %+v", p)
	}
	if p := h.page("/v1/agents?created_at%5Blte%5D=" + soon); len(p.Data) != 5 {
		t.Errorf("got %+v", p)
	}
}

func TestRefusalsOfTheCatalog(t *testing.T) {
	h := newServer(t)
	_, body := h.do("POST", "/v1/environments", `{"name":"e"}`)
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/agents", `{"name":"a","model":"m","engine":"n"}`, 400, "engine: there is no such field"},
		{"POST", "/v1/agents", `{"name":"a"}`, 400, "model: is required"},
		{"POST", "/v1/agents", ``, 400, "empty"},
		{"POST", "/v1/agents/agent_none", `{}`, 404, "agent_none"},
		{"POST", "/v1/agents/agent_none/archive", ``, 404, "agent_none"},
		{"GET", "/v1/agents/agent_none/versions", ``, 404, "agent_none"},
		{"GET", "/v1/agents/" + strings.Repeat("x", 300), ``, 404, "there is no agent"},
		{"GET", "/v1/agents/a%00b", ``, 404, "there is no agent"},
		{"DELETE", "/v1/agents/agent_none", ``, 405, "GET and POST"},
		{"POST", "/v1/environments", `{"name":"e"}`, 409, `called \"e\"`},
		{"POST", "/v1/environments/" + e.ID, `{"config":{"type":"self_hosted"}}`, 400, `"error_code":"invalid_config_type_change"`},
		{"POST", "/v1/environments/" + e.ID + "/archive", `{"force":true}`, 400, "force"},
		{"GET", "/v1/environments/" + e.ID + "/work", ``, 404, "no route"},
		{"GET", "/v1/files", ``, 404, "not_found_error"},
		{"GET", "/v1/models?after_id=zzz", ``, 400, "after_id"},
		{"GET", "/v1/models?lifecycle[]=newish", ``, 400, "lifecycle"},
		{"GET", "/v1/models?before_id=c&limit=1", ``, 200, `"has_more":true`},
		{"GET", "/v1/models?lifecycle[]=retired", ``, 200, `"data":[]`},
	} {
		if status, body := h.do(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}
