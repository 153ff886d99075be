package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// AgentRef names an agent, in a version or in its newest.
type AgentRef struct {
	Type    string                      `json:"type"`
	ID      string                      `json:"id"`
	Version closedjson.Omittable[int32] `json:"version"`
}

// SessionAgentParams is the agent that a session asks for: its id, a reference, or
// a reference with overrides.
type SessionAgentParams struct {
	AgentRef
	Overrides
}

const typeOverrides = "agent_with_overrides"

// DecodeJSON implements closedjson.Decoder.
func (p *SessionAgentParams) DecodeJSON(raw []byte) error {
	if raw[0] == '"' {
		p.Type = typeAgent
		return closedjson.Bind(raw, &p.ID)
	}
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case typeAgent:
		return closedjson.Bind(raw, &p.AgentRef)
	case typeOverrides:
		type object SessionAgentParams
		return closedjson.Bind(raw, (*object)(p))
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", typeAgent, typeOverrides, short(kind)))
}

// SessionAgent returns the agent for a new session. One that is archived is refused, one
// that does not exist is not found.
func (c *Catalog) SessionAgent(ctx context.Context, tenant string, p SessionAgentParams) (Agent, error) {
	if p.Version.Set && p.Version.Value < 1 {
		return Agent{}, invalidf("agent.version", "must be at least 1")
	}
	a, err := c.Agent(ctx, tenant, p.ID, int(p.Version.Value))
	if err != nil {
		return Agent{}, err
	}
	if a.Archived != nil {
		return Agent{}, invalidf("agent", "%s is archived; sessions are made of agents that are not", a.ID)
	}
	a, err = a.override(p.Overrides)
	if err != nil {
		return Agent{}, within("agent", err)
	}
	if p.Tools.Set && len(a.Tools) == 0 && len(a.Skills) > 0 {
		return Agent{}, invalidf("agent.tools", "cannot be cleared while there are skills, which need them")
	}
	return a, nil
}

// within prefixes the path of a problem.
func within(path string, err error) error {
	return fmt.Errorf("%s.%w", path, err)
}

// ToolsUpdate is what may change in the agent of an existing session.
type ToolsUpdate struct {
	Tools      closedjson.Omittable[[]ToolParams] `json:"tools"`
	MCPServers closedjson.Omittable[[]MCPServer]  `json:"mcp_servers"`
}

// UpdateTools returns the agent with other tools.
func (a Agent) UpdateTools(r ToolsUpdate) (Agent, error) {
	changed, err := a.override(Overrides{Tools: r.Tools.Optional(), MCPServers: r.MCPServers.Optional()})
	if err != nil {
		return a, within("agent", err)
	}
	return changed, nil
}

// sessionAgent is the agent of a session in the form of the API.
type sessionAgent struct {
	Type        string      `json:"type"`
	ID          string      `json:"id"`
	Version     int         `json:"version"`
	Name        string      `json:"name"`
	Description *string     `json:"description"`
	Model       Model       `json:"model"`
	System      *string     `json:"system"`
	Tools       []Tool      `json:"tools"`
	MCPServers  []MCPServer `json:"mcp_servers"`
	Skills      []Skill     `json:"skills"`
	// Multiagent is null: no session has one yet; see Unsupported.
	Multiagent *Multiagent `json:"multiagent"`
	Identity   Identity    `json:"execution_identity"`
}

// ParseSessionAgent decodes the agent of a session.
func ParseSessionAgent(raw json.RawMessage) (Agent, error) {
	var s sessionAgent
	if err := json.Unmarshal(raw, &s); err != nil {
		return Agent{}, fmt.Errorf("read agent of session: %w", err)
	}
	return Agent{
		Type: s.Type, ID: s.ID, Version: s.Version, Name: s.Name, Description: s.Description, Model: s.Model, System: s.System,
		Tools: s.Tools, MCPServers: s.MCPServers, Skills: s.Skills, Identity: s.Identity,
	}, nil
}

// Config returns the configuration that a session gets from the agent. It leaves out what
// Unsupported names.
func (a Agent) Config() dormouse.AgentConfig {
	c := dormouse.AgentConfig{
		ID: a.ID, Version: a.Version, Name: truncate(a.Name, dormouse.MaxName), Model: a.Model.ID, Tools: []dormouse.ToolConfig{},
		Shown: dormouse.Encode(sessionAgent{
			Type: a.Type, ID: a.ID, Version: a.Version, Name: a.Name, Description: a.Description, Model: a.Model, System: a.System,
			Tools: a.Tools, MCPServers: a.MCPServers, Skills: a.Skills, Identity: a.Identity,
		}),
	}
	if a.System != nil {
		c.System = *a.System
	}
	if e := a.Model.Effort.Type; e != effortUsual {
		c.Effort = e
	}
	for _, t := range a.Tools {
		switch {
		case t.Toolset != nil:
			c.Tools = append(c.Tools, t.Toolset.config()...)
		case t.Custom != nil:
			c.CustomTools = append(c.CustomTools, dormouse.CustomTool{Name: t.Custom.Name, Description: t.Custom.Description, InputSchema: t.Custom.InputSchema})
		}
	}
	return c
}

// config is the tools that are enabled and supported.
func (t *Toolset) config() []dormouse.ToolConfig {
	var on []dormouse.ToolConfig
	for _, name := range builtin {
		s := t.Default
		if i := slices.IndexFunc(t.Configs, func(s ToolSetting) bool { return s.Name == name }); i >= 0 {
			s = t.Configs[i].Setting
		}
		if s.Enabled && !isWeb(name) {
			on = append(on, dormouse.ToolConfig{Name: name, Permission: permissions[s.Policy.Type]})
		}
	}
	return on
}

func isWeb(tool string) bool { return tool == toolWebFetch || tool == toolWebSearch }

// Unsupported names what the agent has that is not served yet. Web tools count only if
// they were configured by name; those that are enabled by default are ignored.
func (a Agent) Unsupported() []string {
	var gaps []string
	if len(a.MCPServers) > 0 {
		gaps = append(gaps, "mcp_servers")
	}
	if len(a.Skills) > 0 {
		gaps = append(gaps, "skills")
	}
	if a.Multiagent != nil {
		gaps = append(gaps, "multiagent")
	}
	if a.Identity.Type == identityRole {
		gaps = append(gaps, "execution_identity "+identityRole)
	}
	for _, t := range a.Tools {
		if t.Toolset == nil {
			continue
		}
		for _, s := range t.Toolset.Configs {
			if isWeb(s.Name) && s.Enabled {
				gaps = append(gaps, s.Name)
			}
		}
	}
	return gaps
}

// truncate shortens text to a number of bytes.
func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
