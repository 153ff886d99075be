package v1

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// ageReader reads when, and with what, a session was created.
type ageReader interface {
	Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error)
	Now() time.Time
}

// Session is a session as the API shows it.
type Session struct {
	Type          string              `json:"type"`
	ID            dormouse.SessionID  `json:"id"`
	Status        dormouse.Status     `json:"status"`
	Created       time.Time           `json:"created_at"`
	Updated       time.Time           `json:"updated_at"`
	EnvironmentID string              `json:"environment_id"`
	Title         *string             `json:"title"`
	Metadata      map[string]string   `json:"metadata"`
	Agent         json.RawMessage     `json:"agent"`
	Resources     []struct{}          `json:"resources"`
	VaultIDs      []string            `json:"vault_ids"`
	Outcomes      []struct{}          `json:"outcome_evaluations"`
	Usage         dormouse.UsageTotal `json:"usage"`
	Stats         Stats               `json:"stats"`
	Archived      *time.Time          `json:"archived_at"`
	DeploymentID  *string             `json:"deployment_id"`
	Budget        *struct{}           `json:"budget"`
}

// Stats is how long a session, or a thread of it, has been there and at work.
type Stats struct {
	Duration float64 `json:"duration_seconds"`
	Active   float64 `json:"active_seconds"`
}

// describe is a session in the form of the API.
func (s *Server) describe(state law.State, agent dormouse.AgentConfig) Session {
	out := Session{
		Type: "session", ID: state.Session, Status: law.StatusOf(state), Created: state.Created, Updated: state.Updated,
		EnvironmentID: state.EnvironmentID, Metadata: state.Metadata, Agent: describeAgent(state, agent),
		Resources: []struct{}{}, VaultIDs: []string{}, Outcomes: []struct{}{},
		Usage: dormouse.Total(state.Usage, state.CostMicros, s.active(state)), Stats: s.stats(state),
	}
	if out.EnvironmentID == "" { // what it was made with is in no catalog
		out.EnvironmentID = dormouse.DeriveID(catalog.EnvironmentPrefix, string(state.Session))
	}
	if state.Titled {
		out.Title = &state.Title
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	if !state.Archived.IsZero() {
		out.Archived = &state.Archived
	}
	return out
}

// describeRow is a session whose log this program cannot fold, from its row. The agent
// is the one that it was created with, if that can be read.
func (s *Server) describeRow(ctx context.Context, row session.Row) Session {
	active := time.Duration(row.Metrics.ActiveSeconds * float64(time.Second))
	state := law.State{
		Session: row.Session, Created: row.Created, Updated: row.Updated, EnvironmentID: row.EnvironmentID,
		Title: row.Title, Titled: row.Title != "", Metadata: row.Metadata, Archived: row.Archived,
		Usage: row.Metrics.ModelUsage, CostMicros: row.Metrics.CostMicros, Active: active,
	}
	made, _ := s.Sessions.Created(ctx, row.Session)
	out := s.describe(state, made.Agent)
	if out.Status = row.Status; !slices.Contains(statuses, string(row.Status)) {
		out.Status = dormouse.StatusIdle // clients do not know the statuses of newer programs
	}
	if row.Status == dormouse.StatusTerminated {
		out.Stats.Duration = max(row.Updated.Sub(row.Created), 0).Seconds()
	}
	return out
}

// active is how long a session has been at work.
func (s *Server) active(state law.State) time.Duration {
	active := state.Active
	if !state.ActiveSince.IsZero() {
		active += max(s.Sessions.Now().Sub(state.ActiveSince), 0)
	}
	return active
}

func (s *Server) stats(state law.State) Stats {
	until := s.Sessions.Now()
	if state.Terminated != nil {
		until = state.Terminated.At
	}
	return Stats{Duration: max(until.Sub(state.Created), 0).Seconds(), Active: s.active(state).Seconds()}
}

// describeAgent is the agent of a session. One that is in no catalog gets an id of its
// own.
func describeAgent(state law.State, a dormouse.AgentConfig) json.RawMessage {
	if len(a.Shown) > 0 {
		return a.Shown
	}
	return catalog.DescribeConfig(dormouse.DeriveID(catalog.AgentPrefix, string(state.Session)), a)
}
