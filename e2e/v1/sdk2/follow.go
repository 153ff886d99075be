package sdk2

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

type (
	event  = anthropic.BetaManagedAgentsStreamSessionEventsUnion
	stream = ssestream.Stream[event]
)

// follow opens a stream.
func (p *player) follow(ctx context.Context, session string, previews ...anthropic.BetaManagedAgentsDeltaType) *stream {
	return p.client.Beta.Sessions.Events.StreamEvents(ctx, session, anthropic.BetaSessionEventStreamParams{EventDeltas: previews})
}

// until reads a stream up to the first event that is wanted, which it returns.
// see, if not nil, is shown each before.
func until(s *stream, what string, wanted func(event) bool, see func(event)) (event, error) {
	for s.Next() {
		e := s.Current()
		if see != nil {
			see(e)
		}
		if wanted(e) {
			return e, nil
		}
	}
	if s.Err() != nil {
		return event{}, fmt.Errorf("wait for %s: %w", what, s.Err())
	}
	return event{}, fmt.Errorf("wait for %s: the stream ended", what)
}

// kind wants an event of a type.
func kind(t string) func(event) bool { return func(e event) bool { return e.Type == t } }

// idle wants a session to stop for a reason.
func idle(reason string) func(event) bool {
	return func(e event) bool {
		i, ok := e.AsAny().(anthropic.BetaManagedAgentsSessionStatusIdleEvent)
		return ok && i.StopReason.Type == reason
	}
}

// open lists what a session waits for.
func open(e event) []string { return e.AsSessionStatusIdle().StopReason.AsRequiresAction().EventIDs }

// words is what the agent said.
func words(e event) string {
	var text strings.Builder
	for _, b := range e.AsAgentMessage().Content {
		text.WriteString(b.Text)
	}
	return text.String()
}

// say is a message.
func say(text string) anthropic.BetaManagedAgentsEventParamsUnion {
	return anthropic.BetaManagedAgentsEventParamsUnion{OfUserMessage: &anthropic.BetaManagedAgentsUserMessageEventParams{
		Type:    "user.message",
		Content: []anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Type: "text", Text: text}}},
	}}
}

// send sends events and checks that each is taken.
func (p *player) send(ctx context.Context, session string, events ...anthropic.BetaManagedAgentsEventParamsUnion) error {
	res, err := p.client.Beta.Sessions.Events.Send(ctx, session, anthropic.BetaSessionEventSendParams{Events: events})
	if err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	if len(res.Data) != len(events) {
		return fmt.Errorf("sent %d events, and %d were taken", len(events), len(res.Data))
	}
	for i, e := range res.Data {
		if e.ID == "" || e.Type != *events[i].GetType() {
			return fmt.Errorf("sent %s, and %s was taken as %q", *events[i].GetType(), e.Type, e.ID)
		}
	}
	return nil
}

// list is the history of a session, a few events at a time.
func (p *player) list(ctx context.Context, session string, limit int64) ([]anthropic.BetaManagedAgentsSessionEventUnion, error) {
	pages := p.client.Beta.Sessions.Events.ListAutoPaging(ctx, session, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(limit)})
	var all []anthropic.BetaManagedAgentsSessionEventUnion
	for pages.Next() {
		all = append(all, pages.Current())
	}
	if pages.Err() != nil {
		return nil, fmt.Errorf("list events: %w", pages.Err())
	}
	return all, nil
}

// ids lists what is processed of a history.
func ids(events []anthropic.BetaManagedAgentsSessionEventUnion) []string {
	var r stage.Reader
	for _, e := range events {
		r.Take(e.ID, !e.ProcessedAt.IsZero())
	}
	return r.IDs
}

var errWrong = errors.New("not as it must be")

// check is an error unless ok.
func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
}
