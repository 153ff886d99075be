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

// SessionAgent is the agent that a session gets. One that is archived is refused,
// one that is not there is not found.
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
		return Agent{}, under("agent", err)
	}
	if p.Tools.Set && len(a.Tools) == 0 && len(a.Skills) > 0 {
		return Agent{}, invalidf("agent.tools", "cannot be cleared while there are skills, which need them")
	}
	return a, nil
}

// under says that a problem is in a part of what was asked for.
func under(path string, err error) error {
	return fmt.Errorf("%s.%w", path, err)
}

// Retooling is what may change of the agent of a session that exists.
type Retooling struct {
	Tools      closedjson.Omittable[[]ToolParams] `json:"tools"`
	MCPServers closedjson.Omittable[[]MCPServer]  `json:"mcp_servers"`
}

// Retool is the agent as a session goes on with it.
func (a Agent) Retool(r Retooling) (Agent, error) {
	changed, err := a.override(Overrides{Tools: r.Tools.Optional(), MCPServers: r.MCPServers.Optional()})
	if err != nil {
		return a, under("agent", err)
	}
	return changed, nil
}

// shown is an agent as a session shows it.
type shown struct {
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
	// Multiagent is null: no session has one yet; see Gaps.
	Multiagent *Multiagent `json:"multiagent"`
	Identity   Identity    `json:"execution_identity"`
}

// Shown is the agent of a session that shows it so.
func Shown(raw json.RawMessage) (Agent, error) {
	var s shown
	if err := json.Unmarshal(raw, &s); err != nil {
		return Agent{}, fmt.Errorf("read agent of session: %w", err)
	}
	return Agent{
		Type: s.Type, ID: s.ID, Version: s.Version, Name: s.Name, Description: s.Description, Model: s.Model, System: s.System,
		Tools: s.Tools, MCPServers: s.MCPServers, Skills: s.Skills, Identity: s.Identity,
	}, nil
}

// Config is the agent as a session works with it. What Gaps names is not in it.
func (a Agent) Config() dormouse.AgentConfig {
	c := dormouse.AgentConfig{
		ID: a.ID, Version: a.Version, Name: cut(a.Name, dormouse.MaxName), Model: a.Model.ID, Tools: []dormouse.ToolConfig{},
		Shown: dormouse.Encode(shown{
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

// config is the tools that are on and that there are.
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

// Gaps names what the agent has that no session can have yet. Web tools count
// only where they were asked for by name: those that are merely on by default are
// left out.
func (a Agent) Gaps() []string {
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

// cut shortens text to a number of bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
