package v1

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/session/law"
)

// updateSession changes the title, the metadata or the agent of a session. The agent
// takes effect with the next turn.
func (s *Server) updateSession(c call) error {
	var p struct {
		Title    closedjson.Optional[string]                `json:"title"`
		Metadata closedjson.Optional[catalog.MetadataPatch] `json:"metadata"`
		VaultIDs closedjson.Omittable[[]string]             `json:"vault_ids"`
		Agent    closedjson.Omittable[catalog.ToolsUpdate]  `json:"agent"`
		Budget   closedjson.Optional[json.RawMessage]       `json:"budget"`
	}
	if err := c.decode(&p); err != nil {
		return err
	}
	switch {
	case p.VaultIDs.Set:
		return invalidf("vault_ids: cannot change")
	case p.Budget.Given():
		return invalidf("budget: not served yet")
	case p.Title.Given() && p.Title.Value == "":
		return invalidf("title: is empty; send null to take it away")
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	state, err := s.Sessions.Peek(ctx, row.Session)
	if err != nil {
		return err
	}
	v := law.Describe{}
	if p.Title.Set {
		v.Title = &p.Title.Value
	}
	if _, err := catalog.PatchMetadata(state.Metadata, p.Metadata.Value, false); err != nil {
		return err
	}
	for key, value := range p.Metadata.Value {
		if v.Metadata == nil {
			v.Metadata = make(map[string]*string)
		}
		if v.Metadata[key] = nil; !value.Null {
			v.Metadata[key] = &value.Value
		}
	}
	if p.Agent.Set && (p.Agent.Value.Tools.Set || p.Agent.Value.MCPServers.Set) {
		if v.Agent, err = s.updateTools(ctx, state, p.Agent.Value); err != nil {
			return err
		}
	}
	if err := s.Sessions.Do(ctx, row.Session, c.Who.Actor, v); err != nil {
		return wrongState(err)
	}
	return s.answerSession(ctx, c, row.Session)
}

// updateTools is the agent of a session with other tools; nil if they are the same.
func (s *Server) updateTools(ctx context.Context, state law.State, r catalog.ToolsUpdate) (*dormouse.AgentConfig, error) {
	was, err := s.Sessions.AgentOf(ctx, state)
	if err != nil {
		return nil, err
	}
	agent, err := catalog.ParseSessionAgent(describeAgent(state, was))
	if err != nil {
		return nil, err
	}
	if agent, err = agent.UpdateTools(r); err != nil {
		return nil, err
	}
	if gaps := agent.Unsupported(); len(gaps) > 0 {
		return nil, invalidf("agent: a session cannot have yet: %s", strings.Join(gaps, ", "))
	}
	now := agent.Config()
	if string(now.Shown) == string(was.Shown) {
		return nil, nil
	}
	return &now, s.CheckAgent(now)
}
