// Package sdk2 runs programs with the official Go SDK of the present generation.
// Package sdk1 is the same text with the SDK of the generation before, written
// by the tests of e2e/v1 with -update.
package sdk2

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

// Programs lists what people do.
func Programs() []stage.Program {
	return []stage.Program{
		{Name: "quickstart", Run: with(quickstart)},
		{Name: "confirmation", Run: with(confirmation)},
		{Name: "custom tool", Run: with(customTool)},
		{Name: "interrupt", Run: with(interrupt)},
		{Name: "previews", Run: with(previews)},
		{Name: "pagination", Run: with(pagination)},
		{Name: "update and archive", Run: with(updateAndArchive)},
		{Name: "reconnect", Run: with(reconnect)},
		{Name: "threads", Run: with(threads)},
		{Name: stage.Keys, Run: with(keys)},
		{Name: "last event", Run: with(lastEvent)},
	}
}

// player is a program at play.
type player struct {
	stage.Stage
	client anthropic.Client
	env    string
}

// with gives a program its client and an environment.
func with(play func(ctx context.Context, p *player) error) func(context.Context, stage.Stage) error {
	return func(ctx context.Context, s stage.Stage) error {
		p := &player{Stage: s, client: anthropic.NewClient(option.WithBaseURL(s.URL), option.WithAPIKey(s.Key))}
		env, err := p.client.Beta.Environments.New(ctx, anthropic.BetaEnvironmentNewParams{
			Name: s.Name,
			Config: anthropic.BetaEnvironmentNewParamsConfigUnion{OfCloud: &anthropic.BetaCloudConfigParams{
				Networking: anthropic.BetaCloudConfigParamsNetworkingUnion{OfUnrestricted: &anthropic.BetaUnrestrictedNetworkParam{}},
			}},
		})
		if err != nil {
			return fmt.Errorf("make an environment: %w", err)
		}
		p.env = env.ID
		return play(ctx, p)
	}
}

// model is what agents run on; the server asks the scripted one whatever it is.
const model = anthropic.BetaManagedAgentsModelClaudeOpus5_5

// toolset is the agent's tools, which people are asked for if ask says so.
func toolset(ask bool) anthropic.BetaAgentNewParamsToolUnion {
	set := &anthropic.BetaManagedAgentsAgentToolset20260401Params{Type: "agent_toolset_20260401"}
	if ask {
		set.DefaultConfig.PermissionPolicy.OfAlwaysAsk = &anthropic.BetaManagedAgentsAlwaysAskPolicyParam{Type: "always_ask"}
	}
	// The web is elsewhere.
	set.Configs = []anthropic.BetaManagedAgentsAgentToolConfigParamsUnion{
		{OfWebFetch: &anthropic.BetaManagedAgentsWebFetchToolConfigParams{Name: "web_fetch", Enabled: anthropic.Bool(false)}},
		{OfWebSearch: &anthropic.BetaManagedAgentsWebSearchToolConfigParams{Name: "web_search", Enabled: anthropic.Bool(false)}},
	}
	return anthropic.BetaAgentNewParamsToolUnion{OfAgentToolset20260401: set}
}

// agent makes an agent with tools.
func (p *player) agent(ctx context.Context, tools ...anthropic.BetaAgentNewParamsToolUnion) (*anthropic.BetaManagedAgentsAgent, error) {
	a, err := p.client.Beta.Agents.New(ctx, anthropic.BetaAgentNewParams{
		Name: p.Name, Model: anthropic.BetaManagedAgentsModelConfigParams{ID: model}, System: anthropic.String("You are a mouse."), Tools: tools,
	})
	if err != nil {
		return nil, fmt.Errorf("make an agent: %w", err)
	}
	return a, nil
}

// session makes a session of an agent with tools.
func (p *player) session(ctx context.Context, tools ...anthropic.BetaAgentNewParamsToolUnion) (*anthropic.BetaManagedAgentsSession, error) {
	a, err := p.agent(ctx, tools...)
	if err != nil {
		return nil, err
	}
	return p.sessionOf(ctx, a.ID)
}

func (p *player) sessionOf(ctx context.Context, agent string) (*anthropic.BetaManagedAgentsSession, error) {
	s, err := p.client.Beta.Sessions.New(ctx, anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(agent)},
		EnvironmentID: p.env,
		Title:         anthropic.String(p.Name),
	})
	if err != nil {
		return nil, fmt.Errorf("make a session: %w", err)
	}
	return s, nil
}

// refused checks that the server said no, and how.
func refused(err error, what string, status ...int) error {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: want an error of the API, got %w", what, errors.Join(err, errWrong))
	}
	for _, s := range status {
		if e.StatusCode == s && e.RequestID != "" {
			return nil
		}
	}
	return fmt.Errorf("%s: got %d with request %q: %w", what, e.StatusCode, e.RequestID, err)
}

// gone checks that the server has no such thing.
func gone(err error, what string) error { return refused(err, what, http.StatusNotFound) }
