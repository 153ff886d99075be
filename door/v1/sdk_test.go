package v1_test

import (
	"fmt"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

func TestClientsOfBothGenerationsKeepAgents(t *testing.T) {
	h := newServer(t)
	for name, client := range h.generations() {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			agents := &client.Beta.Agents
			a, err := agents.New(ctx, anthropic.BetaAgentNewParams{
				Name: "coder", Model: anthropic.BetaManagedAgentsModelConfigParams{ID: "claude-x"}, System: anthropic.String("be kind"),
				Tools: []anthropic.BetaAgentNewParamsToolUnion{
					{OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if a.Version != 1 || a.Model.ID != "claude-x" || a.System != "be kind" || len(a.Tools) != 1 {
				t.Errorf("got %s", a.RawJSON())
			}
			b, err := agents.Update(ctx, a.ID, anthropic.BetaAgentUpdateParams{Version: anthropic.Int(1), Description: anthropic.String("writes code")})
			if err != nil || b.Version != 2 || b.Description != "writes code" {
				t.Fatalf("%v: %s", err, b.RawJSON())
			}
			_, err = agents.Update(ctx, a.ID, anthropic.BetaAgentUpdateParams{Version: anthropic.Int(1), Name: anthropic.String("x")})
			if e := failure(t, err); e.StatusCode != 409 {
				t.Errorf("got %v", e)
			}
			old, err := agents.Get(ctx, a.ID, anthropic.BetaAgentGetParams{Version: anthropic.Int(1)})
			if err != nil || old.Version != 1 || old.Description != "" {
				t.Errorf("%v: %s", err, old.RawJSON())
			}
			versions := agents.Versions.ListAutoPaging(ctx, a.ID, anthropic.BetaAgentVersionListParams{Limit: anthropic.Int(1)})
			var seen []int64
			for versions.Next() {
				seen = append(seen, versions.Current().Version)
			}
			if versions.Err() != nil || fmt.Sprint(seen) != "[2 1]" {
				t.Errorf("%v: %v", versions.Err(), seen)
			}
			if gone, err := agents.Archive(ctx, a.ID, anthropic.BetaAgentArchiveParams{}); err != nil || gone.ArchivedAt.IsZero() {
				t.Errorf("%v: %s", err, gone.RawJSON())
			}
			_, err = agents.Get(ctx, "agent_none", anthropic.BetaAgentGetParams{})
			if e := failure(t, err); e.StatusCode != 404 {
				t.Errorf("got %v", e)
			}
		})
	}
}

func TestClientsOfBothGenerationsKeepEnvironments(t *testing.T) {
	h := newServer(t)
	for name, client := range h.generations() {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			envs := &client.Beta.Environments
			e, err := envs.New(ctx, anthropic.BetaEnvironmentNewParams{
				Name: "python", Metadata: map[string]string{"k": "v"},
				Config: anthropic.BetaEnvironmentNewParamsConfigUnion{OfCloud: &anthropic.BetaCloudConfigParams{
					Networking: anthropic.BetaCloudConfigParamsNetworkingUnion{OfLimited: &anthropic.BetaLimitedNetworkParams{
						AllowPackageManagers: anthropic.Bool(true), AllowedHosts: []string{"api.example.com"},
					}},
					Packages: anthropic.BetaPackagesParams{Pip: []string{"numpy"}},
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if e.Config.Networking.Type != "limited" || fmt.Sprint(e.Config.Packages.Pip) != "[numpy]" {
				t.Errorf("got %s", e.RawJSON())
			}
			_, err = envs.New(ctx, anthropic.BetaEnvironmentNewParams{Name: "python"})
			if f := failure(t, err); f.StatusCode != 409 {
				t.Errorf("got %v", f)
			}
			if e, err = envs.Update(ctx, e.ID, anthropic.BetaEnvironmentUpdateParams{Description: anthropic.String("for numbers")}); err != nil || e.Description != "for numbers" {
				t.Errorf("%v: %s", err, e.RawJSON())
			}
			if got, err := envs.Get(ctx, e.ID, anthropic.BetaEnvironmentGetParams{}); err != nil || got.RawJSON() != e.RawJSON() {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			if got, err := envs.Archive(ctx, e.ID, anthropic.BetaEnvironmentArchiveParams{}); err != nil || got.ArchivedAt == "" {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			if got, err := envs.Delete(ctx, e.ID, anthropic.BetaEnvironmentDeleteParams{}); err != nil || got.ID != e.ID {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
		})
	}
}

func TestEnvironmentsCanBeDeletedWhileTheyAreListed(t *testing.T) {
	h := newServer(t)
	client := h.generations()["newer"]
	for i := range 7 {
		if _, err := client.Beta.Environments.New(t.Context(), anthropic.BetaEnvironmentNewParams{Name: fmt.Sprint("env ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	all := client.Beta.Environments.ListAutoPaging(t.Context(), anthropic.BetaEnvironmentListParams{Limit: anthropic.Int(2)})
	seen := 0
	for all.Next() {
		seen++
		if _, err := client.Beta.Environments.Delete(t.Context(), all.Current().ID, anthropic.BetaEnvironmentDeleteParams{}); err != nil {
			t.Fatal(err)
		}
	}
	if all.Err() != nil || seen != 7 {
		t.Errorf("%v: %d were listed", all.Err(), seen)
	}
}

func TestClientsListModels(t *testing.T) {
	h := newServer(t)
	for name, client := range h.generations() {
		t.Run(name, func(t *testing.T) {
			all := client.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(2)})
			var seen []string
			for all.Next() {
				seen = append(seen, all.Current().ID)
			}
			if all.Err() != nil || fmt.Sprint(seen) != "[a b c]" {
				t.Errorf("%v: %v", all.Err(), seen)
			}
			if m, err := client.Models.Get(t.Context(), "claude-x", anthropic.ModelGetParams{}); err != nil || m.ID != "claude-x" {
				t.Errorf("%v: %s", err, m.RawJSON())
			}
			_, err := client.Models.Get(t.Context(), "none", anthropic.ModelGetParams{})
			if e := failure(t, err); e.StatusCode != 404 {
				t.Errorf("got %v", e)
			}
		})
	}
}
