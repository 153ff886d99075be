package catalog

import (
	"encoding/json"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// Multiagent is how an agent works with others: exactly one of its fields is set.
type Multiagent struct {
	Coordinator *Coordinator
	Team        *Team
}

// The kinds of multiagent.
const (
	typeCoordinator = "coordinator"
	typeTeam        = "multiagent_20261001"
	typeAgent       = "agent"
	typeSelf        = "self"
	typeAdvisor     = "advisor"
	enabled         = "enabled"
	disabled        = "disabled"
)

// Coordinator is an agent that has others work, each on a thread.
type Coordinator struct {
	Type   string   `json:"type"`
	Agents []Roster `json:"agents"`
}

// Roster is what a coordinator may call: a version of an agent, or an advisor.
type Roster struct {
	Type    string `json:"type"`
	ID      string `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	Model   string `json:"model,omitempty"`
}

// Team is an agent with parts that are on or off.
type Team struct {
	Type      string  `json:"type"`
	Workflows Members `json:"workflows"`
	Subagents Members `json:"subagents"`
	Advisor   Advisor `json:"advisor"`
}

// Members is who may work for an agent.
type Members struct {
	Enabled    bool
	Inline     bool // it may make some up as it goes
	Predefined []Roster
}

// Advisor is a model that an agent may ask.
type Advisor struct {
	Type  string `json:"type"`
	Model string `json:"model,omitempty"`
}

type members struct {
	Type       string   `json:"type"`
	Inline     Typed    `json:"inline_agents"`
	Predefined []Roster `json:"predefined_agents"`
}

func onOff(on bool) Typed {
	if on {
		return Typed{enabled}
	}
	return Typed{disabled}
}

// MarshalJSON implements json.Marshaler.
func (m Members) MarshalJSON() ([]byte, error) {
	if !m.Enabled {
		return dormouse.Encode(Typed{disabled}), nil
	}
	return dormouse.Encode(members{enabled, onOff(m.Inline), append([]Roster{}, m.Predefined...)}), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Members) UnmarshalJSON(raw []byte) error {
	var w members
	err := json.Unmarshal(raw, &w)
	*m = Members{w.Type == enabled, w.Inline.Type == enabled, w.Predefined}
	return err
}

// MarshalJSON implements json.Marshaler.
func (m Multiagent) MarshalJSON() ([]byte, error) {
	if m.Coordinator != nil {
		return dormouse.Encode(m.Coordinator), nil
	}
	return dormouse.Encode(m.Team), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Multiagent) UnmarshalJSON(raw []byte) error {
	var of Typed
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	switch of.Type {
	case typeCoordinator:
		return json.Unmarshal(raw, &m.Coordinator)
	case typeTeam:
		return json.Unmarshal(raw, &m.Team)
	}
	return fmt.Errorf("there is no multiagent of type %q", of.Type)
}

// rosters are the lists of agents in it.
func rosters(m *Multiagent) [][]Roster {
	switch {
	case m == nil:
		return nil
	case m.Coordinator != nil:
		return [][]Roster{m.Coordinator.Agents}
	}
	return [][]Roster{m.Team.Workflows.Predefined, m.Team.Subagents.Predefined}
}

// pin has every mention of an agent itself mean this version of it.
func pin(m *Multiagent, self string, version int) {
	for _, list := range rosters(m) {
		for i := range list {
			if list[i].ID == self {
				list[i].Version = version
			}
		}
	}
}
