//go:build linux

package door_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
)

// property is one that a tool takes an id in.
type property struct {
	tool, name string
	required   []string // what else it takes
}

var saysID = regexp.MustCompile(`\b(id|ref)\b`)

// idProperties are those of all tools whose description says that they are an id.
func idProperties(t *testing.T) (all []property) {
	t.Helper()
	var enabled dormouse.AgentConfig
	for _, name := range tool.Builtin().Names() {
		enabled.Tools = append(enabled.Tools, dormouse.ToolConfig{Name: name})
	}
	for _, spec := range tool.Builtin().Specs(enabled) {
		var schema struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
			Required []string `json:"required"`
		}
		if err := json.Unmarshal(spec.InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if saysID.MatchString(schema.Properties[name].Description) {
				all = append(all, property{spec.Name, name, schema.Required})
			}
		}
	}
	return all
}

// input is what a tool is called with.
func (p property) input(id string) json.RawMessage {
	in := make(map[string]any)
	for _, more := range p.required {
		in[more] = "words"
	}
	if in[p.name] = id; strings.HasPrefix(id, "{") {
		in[p.name], in["allowCrossSession"] = json.RawMessage(id), true
	}
	return mustJSON(in)
}

// A prompt may tell an agent any id. In the tools that take ids, the id of another
// tenant is like one that does not exist, though agents may use what is of other
// sessions.
func TestAnAgentFindsNothingByAnIDOfAnotherTenant(t *testing.T) {
	tr := newTrial(newServer(t))
	before, tried := tr.settled(), 0
	for _, p := range idProperties(t) {
		found := false
		for _, kind := range slices.Sorted(maps.Keys(tr.ids)) {
			if (kind == "ref") != (p.name == "ref") {
				continue
			}
			tried++
			id := tr.ids[kind]
			none := never(id)
			got, want := tr.performs(p, id), tr.performs(p, none)
			if got != want {
				t.Errorf("%s %s = %s: got %s, and for what is not there %s", p.tool, p.name, id, got, want)
			}
			if kind == "ref" || kind == "children" || kind == "wakeups" {
				tr.own.renew()
				found = found || tr.performs(p, tr.own.get(kind)) != want
			}
		}
		if !found {
			t.Errorf("%s %s: what is the session's own is told as what is nobody's", p.tool, p.name)
		}
	}
	const least = 6
	if after := tr.world(); after != before || tried < least {
		t.Errorf("after %d tries what is theirs has changed:\n%s\n%s", tried, before, after)
	}
	t.Logf("tenants: tools=%d tried=%d", len(idProperties(t)), tried)
}

// performs has an agent of the caller call a tool, and returns what it was told.
func (tr *trial) performs(p property, id string) string {
	tr.t.Helper()
	script := "SCRIPT" + string(mustJSON([]any{map[string]any{"tool": p.tool, "input": p.input(id)}, map[string]any{"text": "done"}}))
	tr.own.get("prompt") // which is done
	var asking struct {
		ID string `json:"id"`
	}
	tr.own.json(http.MethodPost, tr.own.path("/prompts"), string(mustJSON(map[string]string{"content": script})), &asking)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var page struct {
			Events []struct {
				Type    string            `json:"type"`
				ID      string            `json:"id"`
				Payload json.RawMessage   `json:"payload"`
				Content []json.RawMessage `json:"content"`
			} `json:"events"`
		}
		tr.own.json(http.MethodGet, tr.own.path("/events?all=true&limit=1000"), "", &page)
		asked, text := false, ""
		for _, e := range page.Events {
			asked = asked || e.Type == string(dormouse.UserMessage) && e.ID == asking.ID
			if asked && e.Type == string(dormouse.AgentToolResult) {
				text = string(e.Payload) + string(mustJSON(e.Content))
			}
		}
		if text != "" {
			for _, secret := range tr.secret {
				if strings.Contains(text, secret) && !strings.Contains(id, secret) {
					tr.t.Errorf("%s %s = %s: the agent is told %s: %s", p.tool, p.name, id, secret, text)
				}
			}
			return tr.sent(id).said(reply{body: []byte(text)})
		}
	}
	tr.t.Fatalf("%s with %s was not answered", p.tool, id)
	return ""
}

// sent is a request that says an id.
func (*trial) sent(id string) asked { return asked{ids: map[place]string{{}: id}} }
