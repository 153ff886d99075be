package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

const maxRoster, maxModel = 20, 256

// MultiagentParams is a multiagent as it is asked for.
type MultiagentParams struct {
	coordinator *coordinatorParams
	team        *teamParams
}

type (
	coordinatorParams struct {
		Type   string         `json:"type"`
		Agents []rosterParams `json:"agents"`
	}
	rosterParams struct {
		Type    string
		ID      string
		Version closedjson.Omittable[int32]
		Model   string
	}
	teamParams struct {
		Type      string                             `json:"type"`
		Workflows closedjson.Optional[membersParams] `json:"workflows"`
		Subagents closedjson.Optional[membersParams] `json:"subagents"`
		Advisor   closedjson.Optional[advisorParams] `json:"advisor"`
	}
	membersParams struct {
		Type       string                              `json:"type"`
		Inline     closedjson.Optional[Typed]          `json:"inline_agents"`
		Predefined closedjson.Optional[[]rosterParams] `json:"predefined_agents"`
	}
	advisorParams struct{ Advisor }
)

// DecodeJSON implements closedjson.Decoder.
func (p *MultiagentParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case typeCoordinator:
		p.coordinator = new(coordinatorParams)
		return closedjson.Bind(raw, p.coordinator)
	case typeTeam:
		p.team = new(teamParams)
		return closedjson.Bind(raw, p.team)
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", typeCoordinator, typeTeam, short(kind)))
}

// DecodeJSON implements closedjson.Decoder.
func (p *rosterParams) DecodeJSON(raw []byte) error {
	if raw[0] == '"' {
		p.Type = typeAgent
		return closedjson.Bind(raw, &p.ID)
	}
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	p.Type = kind
	switch kind {
	case typeAgent:
		var r AgentRef
		err := closedjson.Bind(raw, &r)
		p.ID, p.Version = r.ID, r.Version
		return err
	case typeSelf:
		return closedjson.Bind(raw, new(Typed))
	case typeAdvisor:
		var a struct {
			Type  string `json:"type"`
			Model string `json:"model"`
		}
		err := closedjson.Bind(raw, &a)
		p.Model = a.Model
		return err
	}
	return closedjson.In("type", closedjson.Errorf("must be %s, %s or %s, not %q", typeAgent, typeSelf, typeAdvisor, short(kind)))
}

// DecodeJSON implements closedjson.Decoder.
func (p *membersParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case enabled:
		type object membersParams
		return closedjson.Bind(raw, (*object)(p))
	case disabled:
		p.Type = kind
		return closedjson.Bind(raw, new(Typed))
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", enabled, disabled, short(kind)))
}

// DecodeJSON implements closedjson.Decoder.
func (p *advisorParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	p.Type = kind
	switch kind {
	case enabled:
		var a struct {
			Type  string `json:"type"`
			Model string `json:"model"`
		}
		err := closedjson.Bind(raw, &a)
		p.Model = a.Model
		return err
	case disabled:
		return closedjson.Bind(raw, new(Typed))
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", enabled, disabled, short(kind)))
}

// resolver finds the agents that a multiagent names, for the agent it is of.
type resolver struct {
	catalog *Catalog
	tenant  string
	self    string
	version int
}

// resolve returns the multiagent that is asked for. If it gives only some fields, the
// others stay those of was.
func (r resolver) resolve(ctx context.Context, p MultiagentParams, was *Multiagent) (*Multiagent, error) {
	if p.coordinator != nil {
		if n := len(p.coordinator.Agents); n < 1 {
			return nil, invalidf("multiagent.agents", "is empty")
		}
		list, err := r.roster(ctx, "multiagent.agents", p.coordinator.Agents, true)
		if err != nil {
			return nil, err
		}
		return &Multiagent{Coordinator: &Coordinator{typeCoordinator, list}}, nil
	}
	usual := Members{Enabled: true, Inline: true}
	team := Team{typeTeam, usual, usual, Advisor{Type: disabled}}
	if was != nil && was.Team != nil {
		team = *was.Team
	}
	for _, f := range []struct {
		path string
		from closedjson.Optional[membersParams]
		to   *Members
	}{{"multiagent.workflows", p.team.Workflows, &team.Workflows}, {"multiagent.subagents", p.team.Subagents, &team.Subagents}} {
		var err error
		switch {
		case f.from.Null:
			*f.to = usual
		case f.from.Set:
			*f.to, err = r.members(ctx, f.path, f.from.Value, *f.to)
		}
		if err != nil {
			return nil, err
		}
		if f.to.Enabled && !f.to.Inline && len(f.to.Predefined) == 0 {
			return nil, invalidf(f.path, "with inline_agents disabled it must name an agent in predefined_agents")
		}
	}
	switch a := p.team.Advisor; {
	case a.Null:
		team.Advisor = Advisor{Type: disabled}
	case a.Set:
		team.Advisor = a.Value.Advisor
	}
	if team.Advisor.Type == enabled {
		if err := checkLength("multiagent.advisor.model", team.Advisor.Model, 1, maxModel); err != nil {
			return nil, err
		}
	}
	return &Multiagent{Team: &team}, nil
}

func (r resolver) members(ctx context.Context, path string, p membersParams, was Members) (Members, error) {
	if p.Type == disabled {
		return Members{}, nil
	}
	m := was
	if !m.Enabled {
		m = Members{Enabled: true, Inline: true}
	}
	if p.Inline.Set {
		on := p.Inline.Or(Typed{enabled}).Type
		if on != enabled && on != disabled {
			return m, invalidf(path+".inline_agents.type", "must be %s or %s, not %q", enabled, disabled, short(on))
		}
		m.Inline = on == enabled
	}
	if p.Predefined.Set {
		var err error
		if m.Predefined, err = r.roster(ctx, path+".predefined_agents", p.Predefined.Value, false); err != nil {
			return m, err
		}
	}
	return m, nil
}

// roster finds each agent of a list, in the version that it is pinned to.
func (r resolver) roster(ctx context.Context, path string, params []rosterParams, advisors bool) ([]Roster, error) {
	if len(params) > maxRoster {
		return nil, invalidf(path, "has %d entries; at most %d are taken", len(params), maxRoster)
	}
	list := make([]Roster, 0, len(params))
	for i, p := range params {
		entry := Roster{Type: p.Type, ID: p.ID, Model: p.Model}
		switch {
		case p.Type == typeAdvisor && !advisors:
			return nil, invalidf(at(path, i)+".type", "must be %s or %s", typeAgent, typeSelf)
		case p.Type == typeAdvisor:
			if err := checkLength(at(path, i)+".model", p.Model, 1, maxModel); err != nil {
				return nil, err
			}
		case p.Type == typeSelf || p.ID == r.self:
			entry = Roster{Type: typeAgent, ID: r.self, Version: r.version}
		default:
			version, err := r.find(ctx, at(path, i), p)
			if err != nil {
				return nil, err
			}
			entry.Version = version
		}
		if slices.ContainsFunc(list, func(e Roster) bool { return e.Type == entry.Type && e.ID == entry.ID }) {
			return nil, invalidf(at(path, i), "is there twice")
		}
		list = append(list, entry)
	}
	return list, nil
}

func (r resolver) find(ctx context.Context, path string, p rosterParams) (int, error) {
	a, err := r.catalog.Agent(ctx, r.tenant, p.ID, int(p.Version.Value))
	if errors.Is(err, dormouse.ErrNotFound) {
		return 0, invalidf(path, "there is no agent %q in that version", short(p.ID))
	}
	switch {
	case err != nil:
		return 0, err
	case a.Archived != nil:
		return 0, invalidf(path, "agent %s is archived", a.ID)
	case a.Multiagent != nil:
		return 0, invalidf(path, "agent %s has others work for it; that goes one level deep", a.ID)
	}
	return a.Version, nil
}
