package catalog_test

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
)

// agentSeeds are agents that are taken, or nearly.
var agentSeeds = []string{
	`{"name":"n","model":"m"}`,
	`{"name":"n","model":{"id":"m","speed":"fast","effort":{"type":"max"},"inference_geo":"eu"},"description":null,"system":"s","metadata":{"k":"v"}}`,
	`{"name":"n","model":{"id":"m","speed":null,"effort":"low"},"tools":[{"type":"agent_toolset_20260401","default_config":{"enabled":null},"configs":[{"name":"bash","type":"bash","permission_policy":{"type":"auto"}},{"name":"web_fetch","allowed_domains":["a.example"],"max_content_tokens":5,"url_sources":{"user_input":"all","server_tool_results":{"type":"except","tools":[{"type":"tool_reference","name":"web_search"}]}}},{"name":"web_search","user_location":{"type":"approximate","city":"Berlin","country":"DE"}}]}]}`,
	`{"name":"n","model":"m","tools":[{"type":"mcp_toolset","mcp_server_name":"x","configs":[{"name":"y","enabled":false}]},{"type":"custom","name":"z","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}],"mcp_servers":[{"type":"url","name":"x","url":"https://x.example"}]}`,
	`{"name":"n","model":"m","skills":[{"type":"anthropic","skill_id":"xlsx","version":null}],"multiagent":{"type":"multiagent_20261001","workflows":{"type":"disabled"},"subagents":{"type":"enabled","inline_agents":{"type":"enabled"},"predefined_agents":[{"type":"self"}]},"advisor":{"type":"enabled","model":"m"}}}`,
	`{"name":"n","model":"m","multiagent":{"type":"coordinator","agents":[{"type":"self"},{"type":"advisor","model":"m"}]},"execution_identity":{"type":"aws_role","role_arn":"arn:aws:iam::123456789012:role/x"}}`,
	`{"name":"n","model":"m","tools":null}`,
}

var environmentSeeds = []string{
	`{"name":"n"}`,
	`{"name":"n","config":{"type":"self_hosted"},"description":"d","scope":"organization","metadata":{"k":"v"}}`,
	`{"name":"n","config":{"type":"cloud","networking":{"type":"limited","allowed_hosts":["*.example.com"],"allow_package_managers":true},"packages":{"type":"packages","apt":["git"],"pip":null}}}`,
}

// credentialSeeds are credentials and changes of them.
var credentialSeeds = map[string]string{
	`{"auth":{"type":"static_bearer","token":"t","mcp_server_url":"https://a.example/sse"},"display_name":"d","metadata":{"k":"v"}}`: `{"auth":{"type":"static_bearer","token":"u"},"display_name":"e","metadata":{"k":null}}`,
	oauth: `{"auth":{"type":"mcp_oauth","access_token":"u","expires_at":"2999-01-01T00:00:00Z","refresh":{"refresh_token":"s","scope":"","token_endpoint_auth":{"type":"client_secret_basic","client_secret":"c"}}}}`,
	`{"auth":{"type":"environment_variable","secret_name":"A","secret_value":"v","networking":{"type":"limited","allowed_hosts":["a.example"]},"injection_location":{"header":true,"body":false}}}`: `{"auth":{"type":"environment_variable","secret_value":"w","networking":{"type":"unrestricted"},"injection_location":{"body":true}}}`,
}

// FuzzCreateAgent holds that what is taken is what the API describes, and so is
// what is shown of it.
func FuzzCreateAgent(f *testing.F) {
	for _, s := range agentSeeds {
		f.Add(s)
	}
	s := newShelf(f)
	f.Fuzz(func(t *testing.T, body string) {
		s.t = t
		a, err := s.create(body)
		if err != nil {
			return
		}
		if err := s.spec.Named("BetaManagedAgentsCreateAgentParams", []byte(body)); err != nil {
			t.Errorf("taken, although %v", err)
		}
		if len(a.Unsupported()) > 0 {
			return
		}
		c := a.Config()
		s.holds("BetaManagedAgentsSessionAgent", c.Shown)
		if err := (dormouse.Created{Session: "sesn_1", Tenant: tenant, Owner: "user:local", Recovery: dormouse.RecoverAuto, Agent: c}).Validate(); err != nil {
			t.Errorf("a session cannot be made of it: %v", err)
		}
	})
}

func FuzzUpdateAgent(f *testing.F) {
	s := newShelf(f)
	a := must[catalog.Agent](f)(s.create(agentSeeds[1]))
	for _, seed := range append(agentSeeds, `{"version":1,"metadata":{"k":null},"system":null,"tools":null,"multiagent":null,"execution_identity":null}`) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s.t = t
		if _, err := s.update(a.ID, body); err != nil {
			return
		}
		if err := s.spec.Named("BetaManagedAgentsUpdateAgentParams", []byte(body)); err != nil {
			t.Errorf("taken, although %v", err)
		}
	})
}

func FuzzSessionAgent(f *testing.F) {
	s := newShelf(f)
	a := must[catalog.Agent](f)(s.create(agentSeeds[2]))
	f.Add(`"ID"`, a.ID)
	f.Add(`{"type":"agent","id":"ID","version":1}`, a.ID)
	f.Add(`{"type":"agent_with_overrides","id":"ID","model":"n","system":null,"tools":[],"mcp_servers":[],"skills":[{"type":"custom","skill_id":"s"}]}`, a.ID)
	f.Fuzz(func(t *testing.T, body, id string) {
		p, err := params[catalog.SessionAgentParams](t, body)
		if err != nil {
			return
		}
		p.ID = id
		got, err := s.SessionAgent(t.Context(), tenant, p)
		if err == nil && len(got.Unsupported()) == 0 {
			s.t = t
			s.holds("BetaManagedAgentsSessionAgent", got.Config().Shown)
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	for _, s := range environmentSeeds {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, create, update string) {
		s := newShelf(t)
		e, err := s.createEnvironment(create)
		if err != nil {
			return
		}
		if err := s.spec.Named("BetaPublicEnvironmentCreateRequest", []byte(create)); err != nil {
			t.Errorf("taken, although %v", err)
		}
		if err := e.Sandbox().Validate(); err != nil {
			t.Errorf("no sandbox can be made of it: %v", err)
		}
		if _, err := s.updateEnvironment(e.ID, update); err != nil {
			return
		}
		if err := s.spec.Named("BetaPublicEnvironmentUpdateRequest", []byte(update)); err != nil {
			t.Errorf("taken, although %v", err)
		}
	})
}

func FuzzCredential(f *testing.F) {
	for create, update := range credentialSeeds {
		f.Add(create, update)
	}
	s := newShelf(f)
	vault := s.newVault()
	f.Fuzz(func(t *testing.T, create, update string) {
		s.t = t
		c, err := s.createCredential(vault, create)
		if err != nil {
			return
		}
		if err := s.spec.Named("BetaManagedAgentsCreateCredentialRequestBody", []byte(create)); err != nil {
			t.Errorf("taken, although %v", err)
		}
		if _, err := s.updateCredential(vault, c.ID, update); err == nil {
			if err := s.spec.Named("BetaManagedAgentsUpdateCredentialRequestBody", []byte(update)); err != nil {
				t.Errorf("taken, although %v", err)
			}
		}
		if err := s.DeleteCredential(t.Context(), tenant, vault, c.ID); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzServerURL holds that a URL as it is matched is one, and matched by itself.
func FuzzServerURL(f *testing.F) {
	for _, s := range []string{"https://a.example/sse/", "HTTPS://A.example:443", "https://[::1]:8443/x?y=z", "https://a.example:/", "https://a%20b.example"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := catalog.ServerURL("url", s)
		if err != nil {
			return
		}
		if again, err := catalog.ServerURL("url", key); err != nil || again != key && again+"/" != key {
			t.Errorf("%q is %q, and that is %q, %v", s, key, again, err)
		}
	})
}
