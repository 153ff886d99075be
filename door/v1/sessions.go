package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session"
)

// row finds the session a request is about. One of another tenant is not found.
func (s *Server) row(ctx context.Context, c call) (session.Row, error) {
	id := dormouse.SessionID(c.R.PathValue("session_id"))
	row, err := s.Sessions.Row(ctx, id)
	if err == nil && row.Tenant != c.Who.Tenant || errors.Is(err, dormouse.ErrNotFound) {
		err = dormouse.ErrNotFound // and not where it was looked for
	}
	if err != nil {
		return session.Row{}, fmt.Errorf("session %q: %w", shorten(string(id)), err)
	}
	return row, nil
}

// own checks that the session a request is about is its sender's. That is all that
// what only asks the session has to know.
func (s *Server) own(ctx context.Context, c call) (dormouse.SessionID, error) {
	id := dormouse.SessionID(c.R.PathValue("session_id"))
	tenant, err := s.Sessions.Tenant(ctx, id)
	if err == nil && tenant != c.Who.Tenant || errors.Is(err, dormouse.ErrNotFound) {
		err = dormouse.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("session %q: %w", shorten(string(id)), err)
	}
	return id, nil
}

// maxInitial bounds what a session is asked as it is made.
const maxInitial = 50

// sessionParams is what a session is made of.
type sessionParams struct {
	Agent         catalog.SessionAgentParams              `json:"agent"`
	EnvironmentID string                                  `json:"environment_id"`
	Title         closedjson.Optional[string]             `json:"title"`
	Metadata      closedjson.Omittable[map[string]string] `json:"metadata"`
	Resources     closedjson.Omittable[[]json.RawMessage] `json:"resources"`
	VaultIDs      closedjson.Omittable[[]string]          `json:"vault_ids"`
	InitialEvents closedjson.Omittable[[]received]        `json:"initial_events"`
	Budget        closedjson.Omittable[json.RawMessage]   `json:"budget"`
}

// gaps refuses what no session can have yet.
func (p sessionParams) gaps() error {
	var missing []string
	for _, field := range []struct {
		name  string
		given bool
	}{{"resources", len(p.Resources.Value) > 0}, {"vault_ids", len(p.VaultIDs.Value) > 0}, {"budget", p.Budget.Set}} {
		if field.given {
			missing = append(missing, field.name)
		}
	}
	if len(missing) > 0 {
		return invalidf("%s: not served yet", strings.Join(missing, ", "))
	}
	if n := len(p.InitialEvents.Value); n > maxInitial {
		return invalidf("initial_events: at most %d are taken, not %d", maxInitial, n)
	}
	for i, e := range p.InitialEvents.Value {
		if e.kind != dormouse.UserMessage {
			return invalidf("initial_events[%d].type: must be user.message, not %q", i, e.kind)
		}
	}
	return nil
}

// createSession makes a session, with what it is asked first or idle.
func (s *Server) createSession(c call) error {
	var p sessionParams
	body, err := c.decodeBody(&p)
	if err != nil {
		return err
	}
	if err := p.gaps(); err != nil {
		return err
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id := dormouse.SessionID(session.NewID(dormouse.SessionPrefix))
	var asked dormouse.Digest
	if key != "" {
		id = dormouse.SessionID(dormouse.DeriveID(dormouse.SessionPrefix, c.Who.Tenant, "key", key))
		asked = dormouse.DigestOf(body)
		if done, err := s.createdBefore(ctx, c, id, asked); done || err != nil {
			return err
		}
	}
	made, err := s.madeOf(ctx, c.Who.Tenant, p)
	if err != nil {
		return err
	}
	made.Session, made.Tenant, made.Owner, made.Request = id, c.Who.Tenant, c.Who.Actor, asked
	steps, _, err := steps(p.InitialEvents.Value, func(n int) dormouse.EventID { return keyed(id, "initial", n) }, true)
	if err != nil {
		return err
	}
	prompts := make([]session.Prompt, len(steps))
	for i, step := range steps {
		prompts[i] = *step.Prompt
	}
	crash.At(crash.PromptParsed)
	state, err := s.Sessions.CreateAsked(ctx, c.Who.Actor, made, prompts)
	if key != "" && errors.Is(err, dormouse.ErrConflict) { // by the same request, which was faster
		if done, err := s.createdBefore(ctx, c, id, asked); done || err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	crash.At(crash.PromptAnswered)
	return c.Answer(http.StatusOK, s.shown(state, made.Agent))
}

// createdBefore answers with the session that a request under the same key made, if
// one did.
func (s *Server) createdBefore(ctx context.Context, c call, id dormouse.SessionID, asked dormouse.Digest) (bool, error) {
	made, err := s.Sessions.Created(ctx, id)
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case made.Request != asked:
		return false, errKeyUsed
	}
	return true, s.answerSession(ctx, c, id)
}

// madeOf resolves what a session is made of.
func (s *Server) madeOf(ctx context.Context, tenant string, p sessionParams) (made dormouse.Created, err error) {
	agent, err := s.Catalog.SessionAgent(ctx, tenant, p.Agent)
	if err != nil {
		return made, err
	}
	environment, err := s.Catalog.SessionEnvironment(ctx, tenant, p.EnvironmentID)
	if err != nil {
		return made, err
	}
	if gaps := slices.Concat(agent.Gaps(), environment.Gaps()); len(gaps) > 0 {
		return made, invalidf("a session cannot have yet: %s", strings.Join(gaps, ", "))
	}
	metadata, err := catalog.CheckMetadata(p.Metadata.Value)
	if err != nil {
		return made, err
	}
	made = dormouse.Created{
		Title: p.Title.Value, Metadata: metadata, Agent: agent.Config(), Recovery: dormouse.RecoverAuto, FlushOnError: true,
		SleepAfter: s.SleepAfter, EnvironmentID: environment.ID, Environment: environment.Sandbox(),
	}
	return made, s.CheckAgent(made.Agent)
}

func (s *Server) showSession(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	return s.answerSession(ctx, c, row.Session)
}

func (s *Server) answerSession(ctx context.Context, c call, id dormouse.SessionID) error {
	shown, err := s.sessionOf(ctx, id)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, shown)
}

// sessionOf is a session as it stands.
func (s *Server) sessionOf(ctx context.Context, id dormouse.SessionID) (Session, error) {
	state, err := s.Sessions.Peek(ctx, id)
	if err == nil && state.Deleted {
		err = fmt.Errorf("session %s: %w", id, dormouse.ErrNotFound)
	}
	if err != nil {
		return Session{}, err
	}
	agent, err := s.Sessions.AgentOf(ctx, state)
	if err != nil {
		return Session{}, err
	}
	return s.shown(state, agent), nil
}

const (
	usualPage = 20
	mostPage  = 100
)

// listSessions lists sessions, the newest first unless asked otherwise.
func (s *Server) listSessions(c call) error {
	q := c.query()
	limit := q.limitOrZero(usualPage, mostPage)
	find := session.Query{
		Tenant: c.Who.Tenant, Oldest: q.word("order", "desc", "asc") == "asc", Archived: q.flag("include_archived"),
		AgentID: q.text("agent_id"), AgentVersion: q.number("agent_version", 0, 0, 1<<31-1),
		CreatedFrom: q.time("created_at[gte]"), CreatedAfter: q.time("created_at[gt]"),
		CreatedUntil: q.time("created_at[lte]"), CreatedBefore: q.time("created_at[lt]"),
		Limit: limit + 1,
	}
	for _, status := range q.list("statuses", statuses...) {
		find.Statuses = append(find.Statuses, dormouse.Status(status))
	}
	l := newList("sessions", c.Who.Tenant, strconv.FormatBool(find.Oldest))
	made, after, _ := strings.Cut(l.after(q), " ")
	find.After = dormouse.SessionID(after)
	if q.err == nil && (q.text("memory_store_id") != "" || q.text("deployment_id") != "") {
		return c.Answer(http.StatusOK, Page[Session]{Data: []Session{}}) // there are none, so that no session has one
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.Context()
	defer cancel()
	rows, err := s.Sessions.List(ctx, find)
	if errors.Is(err, dormouse.ErrNotFound) { // what the page before ended with is gone
		if find, err = beyond(find, made); err != nil {
			return err
		}
		rows, err = s.Sessions.List(ctx, find)
	}
	if err != nil {
		return err
	}
	page := pageOf(l, limit, rows, func(r session.Row) string { return spell(r.Created) + " " + string(r.Session) })
	out := Page[Session]{Data: []Session{}, Next: page.Next}
	for _, row := range page.Data {
		shown, err := s.sessionOf(ctx, row.Session)
		if errors.Is(err, dormouse.ErrNotFound) {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		out.Data = append(out.Data, shown)
	}
	return c.Answer(http.StatusOK, out)
}

// beyond goes on from when a session that is gone was made.
func beyond(q session.Query, made string) (session.Query, error) {
	t, err := time.Parse(time.RFC3339Nano, made)
	if err != nil {
		return q, invalidf("page: is no cursor of this list")
	}
	if q.After = ""; q.Oldest {
		q.CreatedFrom = latest(q.CreatedFrom, t)
	} else {
		q.CreatedUntil = earliest(q.CreatedUntil, t)
	}
	return q, nil
}

var statuses = []string{
	string(dormouse.StatusRescheduling), string(dormouse.StatusRunning), string(dormouse.StatusIdle), string(dormouse.StatusTerminated),
}

// updateSession changes what is said about a session, or what it works with from
// the next turn on.
func (s *Server) updateSession(c call) error {
	var p struct {
		Title    closedjson.Optional[string]                `json:"title"`
		Metadata closedjson.Optional[catalog.MetadataPatch] `json:"metadata"`
		VaultIDs closedjson.Omittable[[]string]             `json:"vault_ids"`
		Agent    closedjson.Omittable[catalog.Retooling]    `json:"agent"`
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
	v := session.Describe{}
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
		if v.Agent, err = s.retooled(ctx, state, p.Agent.Value); err != nil {
			return err
		}
	}
	if err := s.Sessions.Do(ctx, row.Session, c.Who.Actor, v); err != nil {
		return wrongState(err)
	}
	return s.answerSession(ctx, c, row.Session)
}

// retooled is the agent of a session with other tools; nil if they are the same.
func (s *Server) retooled(ctx context.Context, state session.State, r catalog.Retooling) (*dormouse.AgentConfig, error) {
	was, err := s.Sessions.AgentOf(ctx, state)
	if err != nil {
		return nil, err
	}
	agent, err := catalog.Shown(shownAgent(state, was))
	if err != nil {
		return nil, err
	}
	if agent, err = agent.Retool(r); err != nil {
		return nil, err
	}
	if gaps := agent.Gaps(); len(gaps) > 0 {
		return nil, invalidf("agent: a session cannot have yet: %s", strings.Join(gaps, ", "))
	}
	now := agent.Config()
	if string(now.Shown) == string(was.Shown) {
		return nil, nil
	}
	return &now, s.CheckAgent(now)
}

// listResources lists what is mounted in a session's sandbox: nothing, since nothing
// can be yet.
func (s *Server) listResources(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	if _, err := s.own(ctx, c); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, Page[struct{}]{Data: []struct{}{}})
}

func (s *Server) archiveSession(c call) error {
	return s.end(c, session.Archive{}, func(ctx context.Context, id dormouse.SessionID) error { return s.answerSession(ctx, c, id) })
}

// deleteSession removes a session that is not running.
func (s *Server) deleteSession(c call) error {
	return s.end(c, session.Delete{Resting: true}, func(_ context.Context, id dormouse.SessionID) error {
		return c.Answer(http.StatusOK, struct {
			Type string             `json:"type"`
			ID   dormouse.SessionID `json:"id"`
		}{"session_deleted", id})
	})
}

func (s *Server) end(c call, v session.Verb, answer func(context.Context, dormouse.SessionID) error) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Sessions.Do(ctx, row.Session, c.Who.Actor, v); err != nil {
		return wrongState(err)
	}
	return answer(ctx, row.Session)
}
