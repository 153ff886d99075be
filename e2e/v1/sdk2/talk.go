package sdk2

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

// quickstart makes an agent, an environment and a session, says something,
// follows the turn, and removes the session.
func quickstart(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	if err := check(s.Status == "idle" && s.EnvironmentID == p.env && s.Agent.Name == p.Name && s.Title == p.Name, "the new session is %s", s.RawJSON()); err != nil {
		return err
	}
	stream := p.follow(ctx, s.ID)
	defer func() { _ = stream.Close() }()
	if err := p.send(ctx, s.ID, say(p.Script(rig.Bash("echo squeak > /tmp/said && cat /tmp/said"), rig.Say("It squeaked.")))); err != nil {
		return err
	}
	var seen stage.Reader
	var said, result string
	_, err = until(stream, "the end of the turn", idle("end_turn"), func(e event) {
		seen.Take(e.ID, !e.ProcessedAt.IsZero())
		switch e := e.AsAny().(type) {
		case anthropic.BetaManagedAgentsAgentMessageEvent:
			said += e.Content[0].Text
		case anthropic.BetaManagedAgentsAgentToolResultEvent:
			for _, b := range e.Content {
				result += b.Text
			}
		}
	})
	if err != nil {
		return err
	}
	now, err := p.client.Beta.Sessions.Get(ctx, s.ID, anthropic.BetaSessionGetParams{})
	if err != nil {
		return err
	}
	history, err := p.list(ctx, s.ID, 1000)
	if err != nil {
		return err
	}
	deleted, err := p.client.Beta.Sessions.Delete(ctx, s.ID, anthropic.BetaSessionDeleteParams{})
	if err != nil {
		return err
	}
	if _, err := until(stream, "session.deleted", kind("session.deleted"), nil); err != nil {
		return err
	}
	_, err = p.client.Beta.Sessions.Get(ctx, s.ID, anthropic.BetaSessionGetParams{})
	return errors.Join(
		check(said == "It squeaked.", "the agent said %q", said),
		check(strings.Contains(result, "squeak"), "the tool said %q", result),
		check(now.Status == "idle", "after the idle event the session is %s", now.Status),
		check(now.Usage.OutputTokens > 0, "nothing was used: %s", now.Usage.RawJSON()),
		check(deleted.ID == s.ID, "deleted %s", deleted.RawJSON()),
		stage.Same("the history", ids(history), seen.IDs),
		gone(err, "the deleted session"),
		check(!stream.Next(), "the stream goes on after session.deleted"),
	)
}

// confirmation has people allow one call and deny another, one after the other.
func confirmation(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(true))
	if err != nil {
		return err
	}
	stream := p.follow(ctx, s.ID)
	defer func() { _ = stream.Close() }()
	calls := rig.Step{"tools": []map[string]any{
		{"name": "bash", "input": map[string]any{"command": "echo first"}},
		{"name": "bash", "input": map[string]any{"command": "echo second > /tmp/second"}},
	}}
	if err := p.send(ctx, s.ID, say(p.Script(calls, rig.Say("As you wish.")))); err != nil {
		return err
	}
	waits, err := until(stream, "requires_action", idle("requires_action"), nil)
	if err != nil {
		return err
	}
	both := open(waits)
	if len(both) != 2 {
		return check(false, "the session waits for %v", both)
	}
	allow := anthropic.BetaManagedAgentsUserToolConfirmationEventParams{Type: "user.tool_confirmation", ToolUseID: both[0], Result: anthropic.BetaManagedAgentsUserToolConfirmationEventParamsResultAllow}
	if err := p.send(ctx, s.ID, anthropic.BetaManagedAgentsEventParamsUnion{OfUserToolConfirmation: &allow}); err != nil {
		return err
	}
	waits, err = until(stream, "the other call", idle("requires_action"), nil)
	if err != nil {
		return err
	}
	if err := stage.Same("what is still open", open(waits), both[1:]); err != nil {
		return err
	}
	deny := anthropic.BetaManagedAgentsUserToolConfirmationEventParams{
		Type: "user.tool_confirmation", ToolUseID: both[1], Result: anthropic.BetaManagedAgentsUserToolConfirmationEventParamsResultDeny, DenyMessage: anthropic.String("not on my watch"),
	}
	if err := p.send(ctx, s.ID, anthropic.BetaManagedAgentsEventParamsUnion{OfUserToolConfirmation: &deny}); err != nil {
		return err
	}
	results := make(map[string]anthropic.BetaManagedAgentsAgentToolResultEvent)
	_, err = until(stream, "the end of the turn", idle("end_turn"), func(e event) {
		if r, ok := e.AsAny().(anthropic.BetaManagedAgentsAgentToolResultEvent); ok {
			results[r.ToolUseID] = r
		}
	})
	if err != nil {
		return err
	}
	first, second := results[both[0]], results[both[1]]
	allow.ToolUseID = both[1]
	_, contrary := p.client.Beta.Sessions.Events.Send(ctx, s.ID, anthropic.BetaSessionEventSendParams{
		Events: []anthropic.BetaManagedAgentsEventParamsUnion{{OfUserToolConfirmation: &allow}},
	})
	return errors.Join(
		check(!first.IsError && strings.Contains(first.RawJSON(), "first"), "the allowed call gave %s", first.RawJSON()),
		check(second.IsError && strings.Contains(second.RawJSON(), "not on my watch"), "the denied call gave %s", second.RawJSON()),
		refused(contrary, "another answer to what was answered", 400, 409),
	)
}

// customTool runs a tool in the client, twice: once it works, once it does not.
func customTool(ctx context.Context, p *player) error {
	lookup := anthropic.BetaAgentNewParamsToolUnion{OfCustom: &anthropic.BetaManagedAgentsCustomToolParams{
		Type: "custom", Name: "lookup", Description: "Looks a word up.",
		InputSchema: anthropic.BetaManagedAgentsCustomToolInputSchemaParam{
			Type: "object", Properties: map[string]any{"word": map[string]any{"type": "string"}}, Required: []string{"word"},
		},
	}}
	s, err := p.session(ctx, toolset(false), lookup)
	if err != nil {
		return err
	}
	stream := p.follow(ctx, s.ID)
	defer func() { _ = stream.Close() }()
	word := func(w string) rig.Step { return rig.Use("lookup", map[string]any{"word": w}) }
	if err := p.send(ctx, s.ID, say(p.Script(word("cheese"), word("cat"), rig.Say("I see.")))); err != nil {
		return err
	}
	for _, w := range []string{"cheese", "cat"} {
		use, err := until(stream, "the call", kind("agent.custom_tool_use"), nil)
		if err != nil {
			return err
		}
		call := use.AsAgentCustomToolUse()
		if err := check(call.Name == "lookup" && call.Input["word"] == w, "the call is %s", call.RawJSON()); err != nil {
			return err
		}
		waits, err := until(stream, "requires_action", idle("requires_action"), nil)
		if err != nil {
			return err
		}
		if err := stage.Same("what is open", open(waits), []string{call.ID}); err != nil {
			return err
		}
		answer := anthropic.BetaManagedAgentsUserCustomToolResultEventParams{
			Type: "user.custom_tool_result", CustomToolUseID: call.ID, IsError: anthropic.Bool(w == "cat"),
			Content: []anthropic.BetaManagedAgentsUserCustomToolResultEventParamsContentUnion{{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Type: "text", Text: "about " + w}}},
		}
		if err := p.send(ctx, s.ID, anthropic.BetaManagedAgentsEventParamsUnion{OfUserCustomToolResult: &answer}); err != nil {
			return err
		}
	}
	_, err = until(stream, "the end of the turn", idle("end_turn"), nil)
	return err
}

// interrupt stops a tool that would run for ever, and a model that talks, and
// says something else instead.
func interrupt(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	stream := p.follow(ctx, s.ID)
	defer func() { _ = stream.Close() }()
	stop := anthropic.BetaManagedAgentsEventParamsUnion{OfUserInterrupt: &anthropic.BetaManagedAgentsUserInterruptEventParams{Type: "user.interrupt"}}
	for _, c := range []struct {
		step  rig.Step
		until string
	}{
		{rig.Bash("sleep 600"), "agent.tool_use"},
		{rig.Step{"text": strings.Repeat("and so on ", 200), "chunks": 200, "chunk_delay_ms": 1000}, "span.model_request_start"},
	} {
		if err := p.send(ctx, s.ID, say(p.Script(c.step, rig.Say("never said")))); err != nil {
			return err
		}
		if _, err := until(stream, c.until, kind(c.until), nil); err != nil {
			return err
		}
		if err := p.send(ctx, s.ID, stop, say(p.Script(rig.Say("instead")))); err != nil {
			return err
		}
		if _, err := until(stream, "the end of the interrupted turn", idle("end_turn"), nil); err != nil {
			return err
		}
		message, err := until(stream, "the redirected turn", kind("agent.message"), nil)
		if err != nil {
			return err
		}
		if err := check(words(message) == "instead", "the agent said %q", words(message)); err != nil {
			return err
		}
		if _, err := until(stream, "the end of the redirected turn", idle("end_turn"), nil); err != nil {
			return err
		}
	}
	return p.send(ctx, s.ID, stop) // nothing runs: no harm
}

// previews watches a message as it is written.
func previews(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	stream := p.follow(ctx, s.ID, anthropic.BetaManagedAgentsDeltaTypeAgentMessage)
	defer func() { _ = stream.Close() }()
	const text = "Mice are small. They are also quick, and they sleep a lot."
	if err := p.send(ctx, s.ID, say(p.Script(rig.Step{"text": text, "chunks": 12, "chunk_delay_ms": 20}))); err != nil {
		return err
	}
	var acc anthropic.BetaManagedAgentsEventAccumulator
	var partial []string
	_, err = until(stream, "the end of the turn", idle("end_turn"), func(e event) {
		acc.Accumulate(e)
		if e.Type == "event_delta" {
			partial = append(partial, acc.AgentMessageText(e.EventID))
		}
	})
	if err != nil {
		return err
	}
	var whole []string
	for id := range acc.AgentMessages {
		whole = append(whole, acc.AgentMessageText(id))
	}
	return errors.Join(
		check(len(partial) > 1, "there were %d previews", len(partial)),
		check(!slices.ContainsFunc(partial, func(t string) bool { return !strings.HasPrefix(text, t) }), "previews that the text does not begin with: %q", partial),
		stage.Same("the message", whole, []string{text}),
	)
}
