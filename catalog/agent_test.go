package catalog_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
)

func TestAnAgentIsShownWhole(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"coder","model":"claude-x","tools":[{"type":"agent_toolset_20260401",
		"default_config":{"permission_policy":{"type":"always_ask"}},
		"configs":[{"name":"bash","enabled":false},{"name":"read","type":"read","permission_policy":{"type":"auto"}},{"name":"web_fetch"},
			{"name":"web_search","allowed_domains":["example.com/docs"],"user_location":{"type":"approximate","country":"DE"}}]},
		{"type":"custom","name":"ask","description":"asks","input_schema":{"type":"object", "properties": {"q":{"type":"string"}}}}]}`))
	for path, want := range map[string]string{
		"version": "1", "description": "null", "system": "null", "archived_at": "null", "multiagent": "null", "metadata": "{}", "skills": "[]", "mcp_servers": "[]",
		"model": `{"effort":{"type":"high"},"id":"claude-x","speed":"standard"}`, "execution_identity": `{"type":"service_account"}`,
	} {
		if got := field(t, a, path); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
	for i, want := range []string{
		`{"enabled":false,"name":"bash","permission_policy":{"type":"always_ask"},"type":"bash"}`,
		`{"enabled":true,"name":"read","permission_policy":{"type":"auto"},"type":"read"}`,
		`{"enabled":true,"name":"web_fetch","permission_policy":{"type":"always_ask"},"type":"web_fetch","url_sources":null}`,
	} {
		if got := field(t, a, "tools", 0, "configs", i); got != want {
			t.Errorf("config %d is %s, not %s", i, got, want)
		}
	}
	got := must[catalog.Agent](t)(s.Agent(t.Context(), tenant, a.ID, 0))
	if string(dormouse.Encode(got)) != string(dormouse.Encode(a)) {
		t.Errorf("it was kept as\n%s\nand not as\n%s", dormouse.Encode(got), dormouse.Encode(a))
	}
	_, err := s.Agent(t.Context(), "others", a.ID, 0)
	refused(t, "another tenant", err, dormouse.ErrNotFound, a.ID)
}

func TestWhatAnAgentMayNotBe(t *testing.T) {
	s := newShelf(t)
	long := func(n int) string { return strings.Repeat("é", n) }
	tool := func(fields string) string {
		return `"tools":[{"type":"custom","description":"d","input_schema":{"type":"object"},` + fields + `}]`
	}
	set := func(configs string) string {
		return `"tools":[{"type":"agent_toolset_20260401","configs":[` + configs + `]}]`
	}
	many := strings.TrimSuffix(strings.Repeat(`{"type":"anthropic","skill_id":"xlsx"},`, 21), ",")
	pairs := make(map[string]string)
	for i := range 17 {
		pairs[fmt.Sprint(i)] = "x"
	}
	custom := make([]string, 0, 257)
	for i := range 257 {
		custom = append(custom, fmt.Sprintf(`{"type":"custom","name":"t%d","description":"d","input_schema":{"type":"object"}}`, i))
	}
	for fields, says := range map[string]string{
		`"title_of":1`:                                     "title_of: there is no such field",
		`"name":""`:                                        "name: has 0 characters",
		`"name":"` + long(257) + `"`:                       "name: has 257 characters",
		`"description":"` + long(2049) + `"`:               "description: has 2049",
		`"system":"` + long(100_001) + `"`:                 "system: has 100001",
		`"model":null`:                                     "model: must be the name of a model or an object, not null",
		`"model":""`:                                       "model.id",
		`"model":{"id":"m","speed":"slow"}`:                "model.speed",
		`"model":{"id":"m","effort":"some"}`:               "model.effort",
		`"model":{"id":"m","effort":{"type":"low","x":1}}`: "model.effort.x",
		`"model":{"idd":"m"}`:                              "model.idd",
		`"tools":null`:                                     "tools: must not be null",
		`"tools":[{"type":"bash_20250124"}]`:               "tools[0].type",
		`"tools":[{}]`:                                     "tools[0].type: is required",
		`"tools":[` + strings.Join(custom, ",") + `]`:      "tools: are 257",
		`"tools":[{"type":"agent_toolset_20260401"},{"type":"agent_toolset_20260401"}]`: "tools[1]: there are two",
		set(`{"name":"sh"}`):                                                                        "tools[0].configs[0].name",
		set(`{"name":"bash"},{"name":"bash"}`):                                                      "configured twice",
		set(`{"name":"bash","type":"read"}`):                                                        "tools[0].configs[0].type",
		set(`{"name":"bash","allowed_domains":["a.example"]}`):                                      "no such field of bash",
		set(`{"name":"bash","permission_policy":{"type":"never"}}`):                                 "tools[0].configs[0].permission_policy.type",
		set(`{"name":"web_fetch","allowed_domains":[]}`):                                            "has 0 entries",
		set(`{"name":"web_fetch","allowed_domains":["a.example/x"]}`):                               "is not a host",
		set(`{"name":"web_fetch","allowed_domains":["a.example"],"blocked_domains":["b.example"]}`): "cannot be combined",
		set(`{"name":"web_fetch","url_sources":{"user_input":"none","client_tool_results":"none","server_tool_results":"none"}}`):        "leaves nothing",
		set(`{"name":"web_fetch","url_sources":{"client_tool_results":{"type":"only","tools":[{"type":"tool_reference","name":"x"}]}}}`): "no custom tool",
		set(`{"name":"web_fetch","url_sources":{"user_input":{"type":"only","tools":[]}}}`):                                              "user_input",
		set(`{"name":"web_fetch","max_content_tokens":0}`):                                                                               "max_content_tokens",
		set(`{"name":"web_search","user_location":{"type":"approximate","country":"de"}}`):                                               "country",
		tool(`"name":"a b"`):              "tools[0].name",
		tool(`"name":"bash"`):             "built-in",
		tool(`"name":"mcp__x"`):           "MCP",
		tool(`"name":"x","enabled":true`): "tools[0].enabled: there is no such field",
		`"tools":[{"type":"custom","name":"x","description":"","input_schema":{"type":"object"}}]`:                                                                                "description: is empty",
		`"tools":[{"type":"custom","name":"x","description":"d","input_schema":{"type":"string"}}]`:                                                                               "input_schema.type",
		`"tools":[{"type":"custom","name":"x","description":"d","input_schema":[]}]`:                                                                                              "must be an object",
		`"tools":[{"type":"custom","name":"x","description":"d","input_schema":{"type":"object","anyOf":[]}}]`:                                                                    "input_schema.anyOf",
		`"tools":[{"type":"custom","name":"x","description":"d","input_schema":{"type":"object","required":"q"}}]`:                                                                "input_schema.required",
		`"tools":[{"type":"custom","name":"x","description":"d","input_schema":{"type":"object","properties":{"a":{"$r\u0065f":"#"}}}}]`:                                          "$ref is not taken",
		`"mcp_servers":[{"type":"url","name":"m","url":"https://m.example"}]`:                                                                                                     "mcp_servers[0]: no mcp_toolset",
		`"mcp_servers":[{"type":"stdio","name":"m","url":"https://m.example"}]`:                                                                                                   "mcp_servers[0].type",
		`"mcp_servers":[{"type":"url","name":"m","url":"file:///etc"}]`:                                                                                                           "mcp_servers[0].url",
		`"mcp_servers":[{"type":"url","name":"m","url":"https://m.example"},{"type":"url","name":"m","url":"https://m.example"}]`:                                                 "two servers",
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"m"}]`:                                                                                                                  "no server",
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"m"},{"type":"mcp_toolset","mcp_server_name":"m"}],"mcp_servers":[{"type":"url","name":"m","url":"https://m.example"}]`: "two toolsets",
		`"skills":[` + many + `]`:                                                        "skills: are 21",
		`"skills":[{"type":"own","skill_id":"x"}]`:                                       "skills[0].type",
		`"skills":[{"type":"custom","skill_id":""}]`:                                     "skills[0].skill_id",
		`"metadata":` + string(dormouse.Encode(pairs)):                                   "has 17 pairs",
		`"metadata":{"` + long(65) + `":"x"}`:                                            "has 65 characters",
		`"metadata":{"k":"` + long(513) + `"}`:                                           "metadata.k: has 513",
		`"metadata":{"k":1}`:                                                             "metadata.k: must be a string",
		`"metadata":{"k":null}`:                                                          "metadata.k: must be a string",
		`"execution_identity":{"type":"root"}`:                                           "execution_identity.type",
		`"execution_identity":{"type":"aws_role","role_arn":"arn:x"}`:                    "execution_identity.role_arn",
		`"execution_identity":{"type":"service_account","role_arn":"x"}`:                 "execution_identity.role_arn: there is no such field",
		`"multiagent":{"type":"coordinator","agents":[]}`:                                "multiagent.agents: is empty",
		`"multiagent":{"type":"coordinator","agents":["agent_none"]}`:                    "there is no agent",
		`"multiagent":{"type":"coordinator","agents":[{"type":"self"},{"type":"self"}]}`: "is there twice",
		`"multiagent":{"type":"multiagent_20261001","workflows":{"type":"enabled","inline_agents":{"type":"disabled"}}}`: "must name an agent",
		`"multiagent":{"type":"multiagent_20261001","advisor":{"type":"enabled"}}`:                                       "multiagent.advisor.model: is required",
		`"multiagent":{"type":"multiagent_20261001"},` + tool(`"name":"ant__x"`):                                         "those of workflows",
	} {
		base := map[string]string{"name": `"n"`, "model": `"m"`}
		body := "{" + fields
		for name, value := range base {
			if !strings.Contains(fields, `"`+name+`":`) || name == "name" && !strings.HasPrefix(fields, `"name":`) {
				body += `,"` + name + `":` + value
			}
		}
		_, err := s.create(body + "}")
		what := fields
		if len(what) > 80 {
			what = what[:80]
		}
		refused(t, what, err, dormouse.ErrInvalid, says)
	}
}

func TestAnUpdateMakesAVersionIfSomethingIsDifferent(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"a","model":{"id":"m","effort":"low","speed":"fast"},"system":"be kind","description":"d","metadata":{"k":"v","l":"w"}}`))
	for _, same := range []string{`{}`, `{"name":"a"}`, `{"version":1,"system":"be kind"}`, `{"model":{"id":"m","speed":"fast"}}`, `{"metadata":{"k":"v","gone":null}}`, `{"metadata":null,"tools":[],"skills":null}`} {
		if got := must[catalog.Agent](t)(s.update(a.ID, same)); got.Version != 1 || !got.Updated.Equal(a.Updated) {
			t.Errorf("%s made version %d", same, got.Version)
		}
	}
	b := must[catalog.Agent](t)(s.update(a.ID, `{"version":1,"model":"m","system":null,"description":"","metadata":{"k":null,"n":"x"}}`))
	if got := field(t, b, "model"); b.Version != 2 || got != `{"effort":{"type":"low"},"id":"m","speed":"standard"}` || b.System != nil || b.Description != nil {
		t.Errorf("got %s", dormouse.Encode(b))
	}
	if got := field(t, b, "metadata"); got != `{"l":"w","n":"x"}` {
		t.Errorf("metadata is %s", got)
	}
	if got := field(t, must[catalog.Agent](t)(s.update(a.ID, `{"model":"other"}`)), "model", "effort", "type"); got != `"high"` {
		t.Errorf("another model has the effort of the one before: %s", got)
	}
	_, err := s.update(a.ID, `{"version":1,"name":"b"}`)
	refused(t, "an old version", err, dormouse.ErrConflict, "is at version 3")
	_, err = s.update(a.ID, `{"version":1}`)
	refused(t, "an old version and no change", err, dormouse.ErrConflict, "is at version 3")
	for body, says := range map[string]string{`{"version":0}`: "version", `{"version":null}`: "version", `{"name":null}`: "name", `{"name":""}`: "name", `{"model":null}`: "model"} {
		_, err := s.update(a.ID, body)
		refused(t, body, err, dormouse.ErrInvalid, says)
	}

	if got := must[catalog.Agent](t)(s.Agent(t.Context(), tenant, a.ID, 1)); string(dormouse.Encode(got)) != string(dormouse.Encode(a)) {
		t.Errorf("version 1 is now %s", dormouse.Encode(got))
	}
	_, err = s.Agent(t.Context(), tenant, a.ID, 4)
	refused(t, "a version that is not there", err, dormouse.ErrNotFound, "no such version")
	versions := must[[]catalog.Agent](t)(s.AgentVersions(t.Context(), tenant, a.ID, 3, 10))
	if len(versions) != 2 || versions[0].Version != 2 || versions[1].Version != 1 {
		t.Errorf("got %s", dormouse.Encode(versions))
	}
}

func TestAnArchivedAgentCanOnlyBeRead(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"a","model":"m"}`))
	must[catalog.Agent](t)(s.update(a.ID, `{"name":"b"}`))
	gone := must[catalog.Agent](t)(s.ArchiveAgent(t.Context(), tenant, a.ID))
	if gone.Archived == nil || gone.Version != 2 {
		t.Errorf("got %s", dormouse.Encode(gone))
	}
	if again := must[catalog.Agent](t)(s.ArchiveAgent(t.Context(), tenant, a.ID)); !again.Archived.Equal(*gone.Archived) {
		t.Errorf("it was archived again")
	}
	_, err := s.update(a.ID, `{"name":"c"}`)
	refused(t, "an update", err, dormouse.ErrInvalid, "archived")
	if old := must[catalog.Agent](t)(s.Agent(t.Context(), tenant, a.ID, 1)); old.Archived == nil || old.Name != "a" {
		t.Errorf("version 1 is %s", dormouse.Encode(old))
	}
	for archived, want := range map[bool]int{false: 0, true: 1} {
		if all := must[[]catalog.Agent](t)(s.Agents(t.Context(), catalog.Query{Tenant: tenant, Archived: archived, Limit: 10})); len(all) != want {
			t.Errorf("archived %v: %d are listed", archived, len(all))
		}
	}
}

func TestChangesAtOnceAreAllMade(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"a","model":"m"}`))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := s.update(a.ID, fmt.Sprintf(`{"metadata":{"k%d":"v"}}`, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := must[catalog.Agent](t)(s.Agent(t.Context(), tenant, a.ID, 0)); got.Version != 9 || len(got.Metadata) != 8 {
		t.Errorf("got %s", dormouse.Encode(got))
	}
}

func TestAMultiagentIsPinnedToVersions(t *testing.T) {
	s := newShelf(t)
	worker := must[catalog.Agent](t)(s.create(`{"name":"worker","model":"m"}`))
	must[catalog.Agent](t)(s.update(worker.ID, `{"name":"worker 2"}`))
	boss := must[catalog.Agent](t)(s.create(`{"name":"boss","model":"m","multiagent":{"type":"coordinator","agents":["` + worker.ID + `",{"type":"self"},{"type":"advisor","model":"big"}]}}`))
	want := fmt.Sprintf(`[{"id":%q,"type":"agent","version":2},{"id":%q,"type":"agent","version":1},{"model":"big","type":"advisor"}]`, worker.ID, boss.ID)
	if got := field(t, boss, "multiagent", "agents"); got != want {
		t.Errorf("got %s, not %s", got, want)
	}
	if same := must[catalog.Agent](t)(s.update(boss.ID, `{"multiagent":{"type":"coordinator","agents":["`+worker.ID+`",{"type":"self"},{"type":"advisor","model":"big"}]}}`)); same.Version != 1 {
		t.Errorf("nothing is different, and there is version %d", same.Version)
	}
	if next := must[catalog.Agent](t)(s.update(boss.ID, `{"name":"big boss"}`)); field(t, next, "multiagent", "agents", 1, "version") != "2" {
		t.Errorf("itself is %s", field(t, next, "multiagent", "agents", 1))
	}
	_, err := s.create(`{"name":"top","model":"m","multiagent":{"type":"coordinator","agents":["` + boss.ID + `"]}}`)
	refused(t, "two levels", err, dormouse.ErrInvalid, "one level")
	must[catalog.Agent](t)(s.ArchiveAgent(t.Context(), tenant, worker.ID))
	_, err = s.create(`{"name":"late","model":"m","multiagent":{"type":"coordinator","agents":["` + worker.ID + `"]}}`)
	refused(t, "an archived agent", err, dormouse.ErrInvalid, "archived")
}

func TestPartsOfATeamAreMerged(t *testing.T) {
	s := newShelf(t)
	worker := must[catalog.Agent](t)(s.create(`{"name":"worker","model":"m"}`))
	a := must[catalog.Agent](t)(s.create(`{"name":"a","model":"m","multiagent":{"type":"multiagent_20261001","workflows":{"type":"disabled"},
		"subagents":{"type":"enabled","inline_agents":{"type":"disabled"},"predefined_agents":["` + worker.ID + `"]}}}`))
	step := func(update, part, want string) {
		t.Helper()
		a = must[catalog.Agent](t)(s.update(a.ID, `{"multiagent":{"type":"multiagent_20261001",`+update+`}}`))
		if got := field(t, a, "multiagent", part); got != want {
			t.Errorf("after %s, %s is %s, not %s", update, part, got, want)
		}
	}
	on := `{"inline_agents":{"type":"enabled"},"predefined_agents":[],"type":"enabled"}`
	step(`"advisor":{"type":"enabled","model":"big"}`, "workflows", `{"type":"disabled"}`)
	step(`"workflows":null`, "workflows", on)
	step(`"subagents":{"type":"enabled","inline_agents":null}`, "subagents",
		`{"inline_agents":{"type":"enabled"},"predefined_agents":[{"id":"`+worker.ID+`","type":"agent","version":1}],"type":"enabled"}`)
	step(`"subagents":{"type":"enabled","predefined_agents":null}`, "subagents", on)
	step(`"subagents":{"type":"disabled"}`, "advisor", `{"model":"big","type":"enabled"}`)
	step(`"advisor":null`, "advisor", `{"type":"disabled"}`)
	if got := must[catalog.Agent](t)(s.update(a.ID, `{"multiagent":null}`)); got.Multiagent != nil {
		t.Errorf("got %s", dormouse.Encode(got))
	}
}

func TestASessionGetsWhatItsAgentHas(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"` + strings.Repeat("é", 200) + `","model":"m","system":"be kind","tools":[
		{"type":"agent_toolset_20260401","configs":[{"name":"bash","permission_policy":{"type":"always_ask"}},{"name":"write","enabled":false},{"name":"grep","permission_policy":{"type":"auto"}}]},
		{"type":"custom","name":"ask","description":"asks","input_schema":{"type":"object"}}]}`))
	c := a.Config()
	want := `[{"name":"bash","permission":"ask"},{"name":"read","permission":"allow"},{"name":"edit","permission":"allow"},{"name":"glob","permission":"allow"},{"name":"grep","permission":"auto"}]`
	if got := string(dormouse.Encode(c.Tools)); got != want {
		t.Errorf("tools are %s, not %s", got, want)
	}
	if c.ID != a.ID || c.Version != 1 || c.Model != "m" || c.System != "be kind" || len(c.CustomTools) != 1 || c.CustomTools[0].Name != "ask" {
		t.Errorf("got %s", dormouse.Encode(c))
	}
	if err := (dormouse.Created{Session: "sesn_1", Tenant: tenant, Owner: "user:local", Recovery: dormouse.RecoverAuto, Agent: c}).Validate(); err != nil {
		t.Error(err)
	}
	s.holds("BetaManagedAgentsSessionAgent", c.Shown)
	if len(a.Unsupported()) != 0 {
		t.Errorf("unsupported are %v", a.Unsupported())
	}

	back := must[catalog.Agent](t)(catalog.ParseSessionAgent(c.Shown))
	if string(back.Config().Shown) != string(c.Shown) {
		t.Errorf("%s is not %s", back.Config().Shown, c.Shown)
	}
	r, err := params[catalog.ToolsUpdate](t, `{"tools":[{"type":"agent_toolset_20260401","default_config":{"enabled":false},"configs":[{"name":"read","enabled":true}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if c := must[catalog.Agent](t)(back.UpdateTools(r)).Config(); string(dormouse.Encode(c.Tools)) != `[{"name":"read","permission":"allow"}]` || len(c.CustomTools) != 0 {
		t.Errorf("got %s", dormouse.Encode(c))
	}
}

func TestOverrides(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Agent](t)(s.create(`{"name":"a","model":{"id":"m","effort":"low"},"system":"be kind","tools":[{"type":"agent_toolset_20260401"}],"skills":[{"type":"anthropic","skill_id":"xlsx"}]}`))
	b := must[catalog.Agent](t)(s.create(`{"name":"b","model":"m","tools":[{"type":"mcp_toolset","mcp_server_name":"x"}],"mcp_servers":[{"type":"url","name":"x","url":"https://x.example"}]}`))
	must[catalog.Agent](t)(s.update(a.ID, `{"system":"be kinder"}`))
	resolve := func(body string) (catalog.Agent, error) {
		p, err := params[catalog.SessionAgentParams](t, body)
		if err != nil {
			return catalog.Agent{}, err
		}
		return s.SessionAgent(t.Context(), tenant, p)
	}
	for body, want := range map[string]string{
		`"ID"`:                                      `m low be kinder 1 1`,
		`{"type":"agent","id":"ID"}`:                `m low be kinder 1 1`,
		`{"type":"agent","id":"ID","version":1}`:    `m low be kind 1 1`,
		`{"type":"agent_with_overrides","id":"ID"}`: `m low be kinder 1 1`,
		`{"type":"agent_with_overrides","id":"ID","version":1,"model":"n","system":null,"tools":[],"skills":null}`: `n high  0 0`,
		`{"type":"agent_with_overrides","id":"ID","model":{"id":"m"},"system":"x","skills":[]}`:                    `m low x 1 0`,
	} {
		got := must[catalog.Agent](t)(resolve(strings.ReplaceAll(body, "ID", a.ID)))
		if s := fmt.Sprintln(got.Model.ID, got.Model.Effort.Type, got.Config().System, len(got.Tools), len(got.Skills)); strings.TrimSpace(s) != strings.TrimSpace(want) {
			t.Errorf("%s: got %s", body, s)
		}
	}
	for body, says := range map[string]string{
		`{"type":"agent_with_overrides","id":"ID","model":null}`:      "agent_model_required",
		`{"type":"agent_with_overrides","id":"ID","tools":[]}`:        "while there are skills",
		`{"type":"agent_with_overrides","id":"BID","mcp_servers":[]}`: "agent.tools[0].mcp_server_name",
		`{"type":"agent_with_overrides","id":"ID","name":"x"}`:        "name: there is no such field",
		`{"type":"agent","id":"ID","system":"x"}`:                     "system: there is no such field",
		`{"type":"agent","id":"ID","version":0}`:                      "version",
		`{"type":"robot","id":"ID"}`:                                  "type",
		`7`:                                                           "must be an object",
	} {
		_, err := resolve(strings.NewReplacer("BID", b.ID, "ID", a.ID).Replace(body))
		refused(t, body, err, dormouse.ErrInvalid, says)
	}
	_, err := resolve(`"agent_none"`)
	refused(t, "an agent that is not there", err, dormouse.ErrNotFound, "agent_none")
	must[catalog.Agent](t)(s.ArchiveAgent(t.Context(), tenant, a.ID))
	_, err = resolve(`"` + a.ID + `"`)
	refused(t, "an archived agent", err, dormouse.ErrInvalid, "archived")
}

func TestGapsAreWhatASessionCannotHaveYet(t *testing.T) {
	s := newShelf(t)
	for fields, want := range map[string]string{
		`"tools":[{"type":"agent_toolset_20260401"}]`: "[]",
		`"tools":[{"type":"agent_toolset_20260401","configs":[{"name":"web_search","enabled":true},{"name":"web_fetch","enabled":false}]}]`: "[web_search]",
		`"skills":[{"type":"custom","skill_id":"skill_1"}]`:                                                                          "[skills]",
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"x"}],"mcp_servers":[{"type":"url","name":"x","url":"https://x.example"}]`: "[mcp_servers]",
		`"multiagent":{"type":"multiagent_20261001"}`:                                                                                "[multiagent]",
		`"execution_identity":{"type":"aws_role","role_arn":"arn:aws:iam::123456789012:role/x"}`:                                     "[execution_identity aws_role]",
	} {
		a := must[catalog.Agent](t)(s.create(`{"name":"a","model":"m",` + fields + `}`))
		if got := fmt.Sprint(a.Unsupported()); got != want {
			t.Errorf("%s: got %s", fields, got)
		}
	}
}
