package session_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

func TestARowSaysWhatOfTheCatalogASessionWasMadeOf(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		agent := everyTool()
		agent.ID, agent.Version, agent.Shown = "agent_a", 3, []byte(`{"id":"agent_a","version":3}`)
		h.create(dormouse.Created{Tenant: "default", Agent: agent, EnvironmentID: "env_a"})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"leaf"}]`))
		settle(time.Minute)
		branch, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range append(h.tree(), branch.Session) {
			row, err := h.live.Row(t.Context(), id)
			if err != nil || row.AgentID != "agent_a" || row.AgentVersion != 3 || row.EnvironmentID != "env_a" {
				t.Errorf("the row of %s is %+v, %v", id, row, err)
			}
			made, err := h.live.Created(t.Context(), id)
			if err != nil || string(made.Agent.Shown) != string(agent.Shown) {
				t.Errorf("%s shows its agent as %s, %v", id, made.Agent.Shown, err)
			}
		}
		found, err := h.live.List(t.Context(), session.Query{Tenant: "default", AgentID: "agent_a", AgentVersion: 3, Limit: 9})
		if err != nil || len(found) != 3 {
			t.Errorf("%d sessions of the agent, %v, want 3", len(found), err)
		}
	})
}
