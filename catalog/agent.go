package catalog

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store"
)

// Agent is an agent in one version, as the API shows it.
type Agent struct {
	Type        string            `json:"type"`
	ID          string            `json:"id"`
	Version     int               `json:"version"`
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	Model       Model             `json:"model"`
	System      *string           `json:"system"`
	Tools       []Tool            `json:"tools"`
	MCPServers  []MCPServer       `json:"mcp_servers"`
	Skills      []Skill           `json:"skills"`
	Metadata    map[string]string `json:"metadata"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
	Multiagent  *Multiagent       `json:"multiagent"`
	Identity    Identity          `json:"execution_identity"`
}

// What an agent may hold, in characters.
const (
	maxName        = 256
	maxDescription = 2048
	maxSystem      = 100_000
)

// AgentParams is an agent as it is asked for.
type AgentParams struct {
	Name        string                                  `json:"name"`
	Model       ModelParams                             `json:"model"`
	Description closedjson.Optional[string]             `json:"description"`
	System      closedjson.Optional[string]             `json:"system"`
	Tools       closedjson.Omittable[[]ToolParams]      `json:"tools"`
	MCPServers  closedjson.Omittable[[]MCPServer]       `json:"mcp_servers"`
	Skills      closedjson.Omittable[[]SkillParams]     `json:"skills"`
	Metadata    closedjson.Omittable[map[string]string] `json:"metadata"`
	Multiagent  closedjson.Optional[MultiagentParams]   `json:"multiagent"`
	Identity    closedjson.Optional[IdentityParams]     `json:"execution_identity"`
}

// AgentUpdate is what is to change of an agent: what is left out stays.
type AgentUpdate struct {
	// Version, if given, is the version that the change is meant for.
	Version     closedjson.Omittable[int32]           `json:"version"`
	Name        closedjson.Omittable[string]          `json:"name"`
	Model       closedjson.Omittable[ModelParams]     `json:"model"`
	Description closedjson.Optional[string]           `json:"description"`
	System      closedjson.Optional[string]           `json:"system"`
	Tools       closedjson.Optional[[]ToolParams]     `json:"tools"`
	MCPServers  closedjson.Optional[[]MCPServer]      `json:"mcp_servers"`
	Skills      closedjson.Optional[[]SkillParams]    `json:"skills"`
	Metadata    closedjson.Optional[MetadataPatch]    `json:"metadata"`
	Multiagent  closedjson.Optional[MultiagentParams] `json:"multiagent"`
	Identity    closedjson.Optional[IdentityParams]   `json:"execution_identity"`
}

// update is what p asks for, as a change of an agent that has nothing.
func (p AgentParams) update() AgentUpdate {
	patch := make(MetadataPatch, len(p.Metadata.Value))
	for k, v := range p.Metadata.Value {
		patch[k] = closedjson.Some(v)
	}
	return AgentUpdate{
		Name: closedjson.Omittable[string]{Set: true, Value: p.Name}, Model: closedjson.Omittable[ModelParams]{Set: true, Value: p.Model},
		Description: p.Description, System: p.System, Tools: p.Tools.Optional(), MCPServers: p.MCPServers.Optional(),
		Skills: p.Skills.Optional(), Metadata: closedjson.Some(patch), Multiagent: p.Multiagent, Identity: p.Identity,
	}
}

// with is the agent as a change leaves it.
func (a Agent) with(ctx context.Context, u AgentUpdate, r resolver) (_ Agent, err error) {
	if u.Name.Set {
		a.Name = u.Name.Value
	}
	if err := checkLength("name", a.Name, 1, maxName); err != nil {
		return a, err
	}
	if u.Description.Set {
		if err := checkLength("description", u.Description.Value, 0, maxDescription); err != nil {
			return a, err
		}
		a.Description = orNil(u.Description.Value)
	}
	if u.Metadata.Set || a.Metadata == nil {
		if a.Metadata, err = PatchMetadata(a.Metadata, u.Metadata.Value, false); err != nil {
			return a, err
		}
	}
	if u.Identity.Set || a.Identity.Type == "" {
		if a.Identity, err = u.Identity.Value.resolve(); err != nil {
			return a, err
		}
	}
	switch {
	case u.Multiagent.Null:
		a.Multiagent = nil
	case u.Multiagent.Set:
		if a.Multiagent, err = r.resolve(ctx, u.Multiagent.Value, a.Multiagent); err != nil {
			return a, err
		}
	}
	return a.override(Overrides{Model: u.Model.Optional(), System: u.System, Tools: u.Tools, MCPServers: u.MCPServers, Skills: u.Skills})
}

// Overrides is what may be replaced of an agent for one session.
type Overrides struct {
	Model      closedjson.Optional[ModelParams]   `json:"model"`
	System     closedjson.Optional[string]        `json:"system"`
	Tools      closedjson.Optional[[]ToolParams]  `json:"tools"`
	MCPServers closedjson.Optional[[]MCPServer]   `json:"mcp_servers"`
	Skills     closedjson.Optional[[]SkillParams] `json:"skills"`
}

// override replaces what o names: what it leaves out stays, null and empty lists
// clear.
func (a Agent) override(o Overrides) (_ Agent, err error) {
	if o.Model.Null {
		return a, &problem{kind: dormouse.ErrInvalid, message: "model: agent_model_required: an agent cannot be without a model"}
	}
	if o.Model.Set {
		if a.Model, err = o.Model.Value.resolve(a.Model); err != nil {
			return a, err
		}
	}
	if o.System.Set {
		if err := checkLength("system", o.System.Value, 0, maxSystem); err != nil {
			return a, err
		}
		a.System = orNil(o.System.Value)
	}
	if o.Tools.Set || a.Tools == nil {
		if a.Tools, err = resolveTools(o.Tools.Value); err != nil {
			return a, err
		}
	}
	if o.MCPServers.Set || a.MCPServers == nil {
		a.MCPServers = append([]MCPServer{}, o.MCPServers.Value...)
	}
	if o.Skills.Set || a.Skills == nil {
		if a.Skills, err = resolveSkills(o.Skills.Value); err != nil {
			return a, err
		}
	}
	return a, a.check()
}

// check refuses parts that do not go together.
func (a Agent) check() error {
	if err := checkServers(a.MCPServers); err != nil {
		return err
	}
	if err := checkToolsets(a.MCPServers, a.Tools); err != nil {
		return err
	}
	if a.Multiagent == nil || a.Multiagent.Team == nil || !a.Multiagent.Team.Workflows.Enabled {
		return nil
	}
	const prefix = "ant__"
	for i, t := range a.Tools {
		if t.Custom != nil && strings.HasPrefix(t.Custom.Name, prefix) {
			return invalidf(at("tools", i)+".name", "names that begin with %s are those of workflows", prefix)
		}
	}
	return nil
}

// same reports whether two agents are configured alike.
func (a Agent) same(b Agent) bool {
	b.Version, b.Created, b.Updated, b.Archived = a.Version, a.Created, a.Updated, a.Archived
	return bytes.Equal(dormouse.Encode(a), dormouse.Encode(b))
}

// document is how an agent is kept.
func (a Agent) document(tenant string) store.Document {
	d := store.Document{
		Tenant: tenant, Kind: kindAgent, ID: a.ID, Version: a.Version, Created: a.Created, Updated: a.Updated, Body: dormouse.Encode(a),
	}
	if a.Archived != nil {
		d.Archived = *a.Archived
	}
	return d
}
