package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// creator creates sessions, and reads what one was created with.
type creator interface {
	CreateAsked(ctx context.Context, by dormouse.Actor, c dormouse.Created, prompts []law.Prompt) (law.State, error)
	Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error)
}

// maxInitial bounds the initial events of a session.
const maxInitial = 50

// sessionParams is what a session is made of.
type sessionParams struct {
	Agent         catalog.SessionAgentParams              `json:"agent"`
	EnvironmentID string                                  `json:"environment_id"`
	Title         closedjson.Optional[string]             `json:"title"`
	Metadata      closedjson.Omittable[map[string]string] `json:"metadata"`
	Resources     closedjson.Omittable[[]json.RawMessage] `json:"resources"`
	VaultIDs      closedjson.Omittable[[]string]          `json:"vault_ids"`
	InitialEvents closedjson.Omittable[[]inputEvent]      `json:"initial_events"`
	Budget        closedjson.Omittable[json.RawMessage]   `json:"budget"`
}

// checkSupported refuses what is not served yet.
func (p sessionParams) checkSupported() error {
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
	if err := p.checkSupported(); err != nil {
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
	steps, _, err := steps(p.InitialEvents.Value, func(n int) dormouse.EventID { return initialEventID(id, n) }, true)
	if err != nil {
		return err
	}
	prompts := make([]law.Prompt, len(steps))
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
	return c.Answer(http.StatusOK, s.describe(state, made.Agent))
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
	if gaps := slices.Concat(agent.Unsupported(), environment.Unsupported()); len(gaps) > 0 {
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

// initialEventID is the id of the n-th event that a session is made with. No key that a client
// gives later leads to it.
func initialEventID(id dormouse.SessionID, n int) dormouse.EventID {
	return dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(id), "initial", strconv.Itoa(n)))
}
