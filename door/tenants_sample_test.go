//go:build linux

package door_test

import "net/http"

// samples are requests that get as far as their ids are looked up. A route that takes
// nothing but ids in its path needs none, and one whose body has ids by type is given
// them without being listed here.
var samples = map[string][]sample{
	"POST /api/sessions":                               {{body: `{"warm":false,"parent":"$sessions"}`}},
	"POST /api/sessions/import":                        {{body: "no image"}, {body: "no image", query: `session={"parent":"$sessions"}`}},
	"PATCH /api/sessions/{id}":                         {{body: `{"title":"x"}`}},
	"POST /api/sessions/{id}/prompts":                  {{body: `{"content":"x","thread":"$threads"}`}},
	"POST /api/sessions/{id}/wakeups":                  {{body: `{"in":"24h","prompt":"x","thread":"$threads"}`}},
	"POST /api/sessions/{id}/answers":                  {{body: `{"tool_use_id":"$tool_use_id","result":"allow"}`}, {body: `{"custom_tool_use_id":"$custom_tool_use_id","content":"x"}`}},
	"POST /api/sessions/{id}/execs":                    {{body: `{"command":"true"}`}},
	"POST /api/sessions/{id}/snapshots":                {{body: `{"label":"x"}`}},
	"POST /api/sessions/{id}/snapshots/prune":          {{body: `{"keep":1}`}},
	"POST /api/sessions/{id}/snapshots/import":         {{body: "no image"}},
	"GET /api/sessions/{id}/snapshots/{snapshot}/diff": {{query: "to=$snapshots"}, {query: "with=$sessions"}},
	"POST /api/sessions/{id}/restore":                  {{body: `{"snapshot":"$snapshots"}`}},
	"GET /api/sessions/{id}/files":                     {{query: "path=file"}},
	"PUT /api/sessions/{id}/files":                     {{query: "path=below", body: string(make([]byte, 1024))}},

	"POST /v1/agents": {
		{body: `{"name":"x","model":"scripted","multiagent":{"type":"coordinator","agents":["$agents"]}}`},
		{body: `{"name":"x","model":"scripted","multiagent":{"type":"coordinator","agents":[{"type":"agent","id":"$agents"}]}}`},
		{body: `{"name":"x","model":"scripted","multiagent":{"type":"multiagent_20261001","subagents":{"type":"enabled","predefined_agents":[{"type":"agent","id":"$agents"}]}}}`},
	},
	"POST /v1/agents/{id}": {
		{body: `{"description":"x"}`},
		{body: `{"multiagent":{"type":"coordinator","agents":[{"type":"agent","id":"$agents"}]}}`},
	},
	"POST /v1/environments":      {{body: `{"name":"x"}`}},
	"POST /v1/environments/{id}": {{body: `{"description":"x"}`}},
	"POST /v1/vaults":            {{body: `{"display_name":"x"}`}},
	"POST /v1/vaults/{id}":       {{body: `{"display_name":"x"}`}},
	"POST /v1/vaults/{id}/credentials": {
		{body: `{"auth":{"type":"static_bearer","token":"x","mcp_server_url":"https://x.example"}}`},
		{body: `{"auth":{"type":"environment_variable","secret_name":"X","secret_value":"x","networking":{"type":"unrestricted"}}}`},
	},
	"POST /v1/vaults/{id}/credentials/{credential}": {{body: `{"display_name":"x","auth":{"type":"mcp_oauth","access_token":"x"}}`}},
	"POST /v1/sessions": {
		{body: `{"agent":"$agents","environment_id":"$environments"}`},
		{body: `{"agent":{"type":"agent","id":"$agents","version":1},"environment_id":"$environments"}`},
		{body: `{"agent":{"type":"agent_with_overrides","id":"$agents","system":"x"},"environment_id":"$environments"}`},
	},
	"GET /v1/sessions":               {{}, {query: "agent_id=$agents"}},
	"POST /v1/sessions/{session_id}": {{body: `{"title":"x"}`}},
	"POST /v1/sessions/{session_id}/events": {
		{body: `{"events":[{"type":"user.message","content":[{"type":"text","text":"x"}]}]}`},
		{body: `{"events":[{"type":"user.interrupt","session_thread_id":"$threads"}]}`},
		{body: `{"events":[{"type":"user.tool_confirmation","tool_use_id":"$tool_use_id","result":"allow"}]}`},
		{body: `{"events":[{"type":"user.custom_tool_result","custom_tool_use_id":"$custom_tool_use_id","content":[{"type":"text","text":"x"}]}]}`},
	},
}

const roster = "the API tells a roster that names what is not there as a wrong request"

// otherwise are the places where an id of nothing is not told with a 404, and why.
var otherwise = map[string]struct {
	status int
	why    string
}{
	"DELETE /api/sessions/{id}/snapshots/{snapshot} path snapshot":            {http.StatusNoContent, "to delete what is not there is well"},
	"POST /api/sessions/{id}/answers body tool_use_id":                        {http.StatusConflict, "a call that was answered is not waiting either, and is not told apart"},
	"POST /api/sessions/{id}/answers body custom_tool_use_id":                 {http.StatusConflict, "as for other calls"},
	"DELETE /api/sessions/{id}/terminals/{terminal} path terminal":            {http.StatusNoContent, "to end what is not there is well"},
	"POST /api/sessions/import query session:parent":                          {http.StatusBadRequest, "what is made of an image has no parent, whichever it is"},
	"POST /v1/agents body multiagent.agents[0]":                               {http.StatusBadRequest, roster},
	"POST /v1/agents body multiagent.agents[0].id":                            {http.StatusBadRequest, roster},
	"POST /v1/agents body multiagent.subagents.predefined_agents[0].id":       {http.StatusBadRequest, roster},
	"POST /v1/agents/{id} body multiagent.agents[0].id":                       {http.StatusBadRequest, roster},
	"POST /v1/sessions/{session_id}/events body events[0].tool_use_id":        {http.StatusBadRequest, "as under /api, in the words of the other API"},
	"POST /v1/sessions/{session_id}/events body events[0].custom_tool_use_id": {http.StatusBadRequest, "as under /api, in the words of the other API"},
	"GET /v1/sessions query agent_id":                                         {http.StatusOK, "a filter finds nothing"},
}
