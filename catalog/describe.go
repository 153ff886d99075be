package catalog

import (
	"encoding/json"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// DescribeConfig encodes an agent that is in no catalog in the form that the agent of a
// session has in the API. Tools that the API does not have are left out.
func DescribeConfig(id string, c dormouse.AgentConfig) json.RawMessage {
	s := sessionAgent{
		Type: typeAgent, ID: id, Version: 1, Name: c.Name, Model: Model{ID: c.Model, Speed: speedStandard, Effort: Typed{effortUsual}},
		Tools: []Tool{}, MCPServers: []MCPServer{}, Skills: []Skill{}, Identity: Identity{Type: identityService},
	}
	if c.System != "" {
		s.System = &c.System
	}
	set := &Toolset{Type: typeToolset, Default: Setting{Policy: Typed{policyAllow}}, Configs: []ToolSetting{}}
	for _, t := range c.Tools {
		if slices.Contains(builtin, t.Name) {
			set.Configs = append(set.Configs, ToolSetting{Type: t.Name, Name: t.Name, Setting: Setting{Enabled: true, Policy: Typed{policyOf(t.Permission)}}})
		}
	}
	if len(set.Configs) > 0 {
		s.Tools = append(s.Tools, Tool{Toolset: set})
	}
	for _, t := range c.CustomTools {
		schema := t.InputSchema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		s.Tools = append(s.Tools, Tool{Custom: &CustomTool{Type: typeCustom, Name: t.Name, Description: t.Description, InputSchema: schema}})
	}
	return dormouse.Encode(s)
}

func policyOf(p dormouse.Permission) string {
	for policy, permission := range permissions {
		if permission == p {
			return policy
		}
	}
	return policyAllow
}
