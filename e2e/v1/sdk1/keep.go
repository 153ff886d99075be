// Code generated from package sdk2. DO NOT EDIT.

package sdk1

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

// pagination reads lists a few entries at a time.
func pagination(ctx context.Context, p *player) error {
	begun := time.Now().Add(-time.Second)
	var made []string
	for range 5 {
		a, err := p.agent(ctx)
		if err != nil {
			return err
		}
		made = append(made, a.ID)
	}
	var agents []string
	all := p.client.Beta.Agents.ListAutoPaging(ctx, anthropic.BetaAgentListParams{Limit: anthropic.Int(2), CreatedAtGte: anthropic.Time(begun)})
	for all.Next() {
		if slices.Contains(made, all.Current().ID) {
			agents = append(agents, all.Current().ID)
		}
	}
	if all.Err() != nil {
		return all.Err()
	}
	slices.Sort(made)
	slices.Sort(agents)
	if err := stage.Same("the agents", agents, made); err != nil {
		return err
	}
	var sessions []string
	for range 3 {
		s, err := p.sessionOf(ctx, made[0])
		if err != nil {
			return err
		}
		sessions = append(sessions, s.ID)
	}
	for _, order := range []anthropic.BetaSessionListParamsOrder{anthropic.BetaSessionListParamsOrderAsc, anthropic.BetaSessionListParamsOrderDesc} {
		var listed []string
		pages := p.client.Beta.Sessions.ListAutoPaging(ctx, anthropic.BetaSessionListParams{
			AgentID: anthropic.String(made[0]), Limit: anthropic.Int(1), Order: order, Statuses: []string{"idle", "running"},
		})
		for pages.Next() {
			listed = append(listed, pages.Current().ID)
		}
		if order == anthropic.BetaSessionListParamsOrderDesc {
			slices.Reverse(listed)
		}
		if err := errors.Join(pages.Err(), stage.Same("the sessions", listed, sessions)); err != nil {
			return err
		}
	}
	if err := p.turn(ctx, sessions[0]); err != nil {
		return err
	}
	return errors.Join(p.histories(ctx, sessions[0]), p.models(ctx))
}

// turn has a session say something.
func (p *player) turn(ctx context.Context, session string) error {
	stream := p.follow(ctx, session)
	defer func() { _ = stream.Close() }()
	if err := p.send(ctx, session, say(p.Script(rig.Say("yes")))); err != nil {
		return err
	}
	_, err := until(stream, "the end of the turn", idle("end_turn"), nil)
	return err
}

// histories reads a history in pages of every size, both ways, and a part of it.
func (p *player) histories(ctx context.Context, session string) error {
	whole, err := p.list(ctx, session, 1000)
	if err != nil {
		return err
	}
	for _, limit := range []int64{1, 3, 7} {
		part, err := p.list(ctx, session, limit)
		if err := errors.Join(err, stage.Same(fmt.Sprintf("pages of %d", limit), ids(part), ids(whole))); err != nil {
			return err
		}
	}
	back := p.client.Beta.Sessions.Events.ListAutoPaging(ctx, session, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(2), Order: anthropic.BetaSessionEventListParamsOrderDesc})
	var backwards []string
	for back.Next() {
		backwards = append(backwards, back.Current().ID)
	}
	slices.Reverse(backwards)
	said, err := p.client.Beta.Sessions.Events.List(ctx, session, anthropic.BetaSessionEventListParams{
		Types: []anthropic.BetaManagedAgentsSessionEventType{anthropic.BetaManagedAgentsSessionEventTypeUserMessage, anthropic.BetaManagedAgentsSessionEventTypeAgentMessage},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		back.Err(), stage.Same("backwards", backwards, ids(whole)),
		check(len(said.Data) == 2 && said.Data[0].Type == "user.message" && said.Data[1].Type == "agent.message" && said.NextPage == "", "the messages are %s", said.RawJSON()),
	)
}

// models looks at the models, as some clients do first.
func (p *player) models(ctx context.Context) error {
	pages := p.client.Models.ListAutoPaging(ctx, anthropic.ModelListParams{})
	var first string
	for pages.Next() {
		if first == "" {
			first = pages.Current().ID
		}
	}
	if err := errors.Join(pages.Err(), check(first != "", "there is no model")); err != nil {
		return err
	}
	m, err := p.client.Beta.Models.Get(ctx, first, anthropic.BetaModelGetParams{})
	if err != nil {
		return err
	}
	return check(m.ID == first, "asked for %s, got %s", first, m.ID)
}

// updateAndArchive changes an agent, a session and an environment, and puts them
// away.
func updateAndArchive(ctx context.Context, p *player) error {
	a, err := p.agent(ctx, toolset(false))
	if err != nil {
		return err
	}
	if err := p.changeAgent(ctx, a); err != nil {
		return err
	}
	s, err := p.sessionOf(ctx, a.ID)
	if err != nil {
		return err
	}
	if err := p.changeSession(ctx, s.ID); err != nil {
		return err
	}
	env, err := p.client.Beta.Environments.Update(ctx, p.env, anthropic.BetaEnvironmentUpdateParams{Description: anthropic.String("a hole in the wall")})
	if err := errors.Join(err, check(env != nil && env.Description == "a hole in the wall", "the environment is %v", env)); err != nil {
		return err
	}
	archived, err := p.client.Beta.Sessions.Archive(ctx, s.ID, anthropic.BetaSessionArchiveParams{})
	if err := errors.Join(err, check(archived != nil && archived.Status == "terminated" && !archived.ArchivedAt.IsZero(), "the archived session is %v", archived)); err != nil {
		return err
	}
	_, late := p.client.Beta.Sessions.Events.Send(ctx, s.ID, anthropic.BetaSessionEventSendParams{Events: []anthropic.BetaManagedAgentsEventParamsUnion{say("hello?")}})
	history, err := p.list(ctx, s.ID, 1000)
	if err != nil {
		return err
	}
	last := history[len(history)-1].Type
	_, err = p.client.Beta.Agents.Archive(ctx, a.ID, anthropic.BetaAgentArchiveParams{})
	_, none := p.sessionOf(ctx, a.ID)
	_, missing := p.client.Beta.Agents.Get(ctx, "agent_nobody", anthropic.BetaAgentGetParams{})
	if err := errors.Join(
		err, refused(late, "a message to an archived session", 400, 409), check(last == "session.status_terminated", "the log ends with %s", last),
		refused(none, "a session of an archived agent", 400, 409), gone(missing, "an agent that is not there"),
	); err != nil {
		return err
	}
	_, err = p.client.Beta.Environments.Archive(ctx, p.env, anthropic.BetaEnvironmentArchiveParams{})
	if err != nil {
		return err
	}
	_, err = p.client.Beta.Environments.Delete(ctx, p.env, anthropic.BetaEnvironmentDeleteParams{})
	if err != nil {
		return err
	}
	_, err = p.client.Beta.Environments.Get(ctx, p.env, anthropic.BetaEnvironmentGetParams{})
	return gone(err, "the deleted environment")
}

func (p *player) changeAgent(ctx context.Context, a *anthropic.BetaManagedAgentsAgent) error {
	update := func(u anthropic.BetaAgentUpdateParams) (*anthropic.BetaManagedAgentsAgent, error) {
		return p.client.Beta.Agents.Update(ctx, a.ID, u)
	}
	second, err := update(anthropic.BetaAgentUpdateParams{Version: anthropic.Int(1), System: anthropic.String("You are a rat."), Metadata: map[string]string{"k": "v"}})
	if err := errors.Join(err, check(second != nil && second.Version == 2 && second.System == "You are a rat.", "the second version is %v", second)); err != nil {
		return err
	}
	same, err := update(anthropic.BetaAgentUpdateParams{System: anthropic.String("You are a rat.")})
	if err := errors.Join(err, check(same != nil && same.Version == 2, "a change of nothing made version %v", same)); err != nil {
		return err
	}
	_, stale := update(anthropic.BetaAgentUpdateParams{Version: anthropic.Int(1), Name: anthropic.String("late")})
	first, err := p.client.Beta.Agents.Get(ctx, a.ID, anthropic.BetaAgentGetParams{Version: anthropic.Int(1)})
	if err != nil {
		return err
	}
	versions, err := p.client.Beta.Agents.Versions.List(ctx, a.ID, anthropic.BetaAgentVersionListParams{})
	if err != nil {
		return err
	}
	return errors.Join(
		refused(stale, "a change of an old version", 409),
		check(first.System == "You are a mouse.", "the first version is %s", first.RawJSON()),
		check(len(versions.Data) == 2 && versions.Data[0].Version == 2, "the versions are %s", versions.RawJSON()),
	)
}

func (p *player) changeSession(ctx context.Context, id string) error {
	got, err := p.client.Beta.Sessions.Update(ctx, id, anthropic.BetaSessionUpdateParams{Title: anthropic.String("renamed"), Metadata: map[string]string{"colour": "grey"}})
	if err := errors.Join(err, check(got != nil && got.Title == "renamed" && got.Metadata["colour"] == "grey", "the session is %v", got)); err != nil {
		return err
	}
	if err := p.turn(ctx, id); err != nil {
		return err
	}
	history, err := p.list(ctx, id, 1000)
	if err != nil {
		return err
	}
	return check(slices.ContainsFunc(history, func(e anthropic.BetaManagedAgentsSessionEventUnion) bool { return e.Type == "session.updated" }), "nobody was told of the change")
}

// reconnect loses its stream again and again, and follows the rule: open a
// stream, list the history, go on with the stream, take what comes twice once.
func reconnect(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	steps := make([]rig.Step, 0, 9)
	for range 8 {
		steps = append(steps, rig.Bash("sleep 0.05"))
	}
	if err := p.send(ctx, s.ID, say(p.Script(append(steps, rig.Say("There."))...))); err != nil {
		return err
	}
	var seen stage.Reader
	for done := false; !done; {
		if done, err = p.glance(ctx, s.ID, &seen); err != nil {
			return err
		}
	}
	history, err := p.list(ctx, s.ID, 1000)
	if err != nil {
		return err
	}
	return stage.Same("what was seen", seen.IDs, ids(history))
}

// glance follows a session for a few events.
func (p *player) glance(ctx context.Context, session string, seen *stage.Reader) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := p.follow(ctx, session)
	defer func() { _ = stream.Close() }()
	history, err := p.list(ctx, session, 1000)
	if err != nil {
		return false, err
	}
	for _, e := range history {
		seen.Take(e.ID, !e.ProcessedAt.IsZero())
		done = e.Type == "session.status_idle"
	}
	if done {
		return true, nil
	}
	n := 0
	last, err := until(stream, "a few events", func(e event) bool {
		if seen.Take(e.ID, !e.ProcessedAt.IsZero()) {
			n++
		}
		return n == 5 || idle("end_turn")(e)
	}, nil)
	return idle("end_turn")(last), err
}

// threads looks at the one thread that every session has.
func threads(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	if err := p.turn(ctx, s.ID); err != nil {
		return err
	}
	list, err := p.client.Beta.Sessions.Threads.List(ctx, s.ID, anthropic.BetaSessionThreadListParams{})
	if err := errors.Join(err, check(list != nil && len(list.Data) == 1 && list.Data[0].ParentThreadID == "", "the threads are %v", list)); err != nil {
		return err
	}
	thread := list.Data[0].ID
	got, err := p.client.Beta.Sessions.Threads.Get(ctx, thread, anthropic.BetaSessionThreadGetParams{SessionID: s.ID})
	if err := errors.Join(err, check(got != nil && got.SessionID == s.ID && got.Status == "idle", "the thread is %v", got)); err != nil {
		return err
	}
	stream := p.client.Beta.Sessions.Threads.Events.StreamEvents(ctx, thread, anthropic.BetaSessionThreadEventStreamParams{SessionID: s.ID})
	defer func() { _ = stream.Close() }()
	if err := p.send(ctx, s.ID, say(p.Script(rig.Say("threaded")))); err != nil {
		return err
	}
	said := false
	for !said && stream.Next() {
		said = stream.Current().Type == "agent.message"
	}
	events, err := p.client.Beta.Sessions.Threads.Events.List(ctx, thread, anthropic.BetaSessionThreadEventListParams{SessionID: s.ID})
	if err != nil {
		return err
	}
	return errors.Join(
		stream.Err(), check(said, "the thread's stream says nothing"),
		check(slices.ContainsFunc(events.Data, func(e anthropic.BetaManagedAgentsSessionEventUnion) bool { return e.Type == "agent.message" }), "the thread's events are %s", events.RawJSON()),
	)
}
