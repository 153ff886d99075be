package sdk2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

// under names a request, so that the client may send it as often as it likes.
func under(key string) []option.RequestOption {
	return []option.RequestOption{option.WithHeader("Idempotency-Key", key), option.WithMaxRetries(8)}
}

// keys names its requests: sent again they are the same ones.
func keys(ctx context.Context, p *player) error {
	a, err := p.agent(ctx, toolset(false))
	if err != nil {
		return err
	}
	create := func(title string) (*anthropic.BetaManagedAgentsSession, error) {
		return p.client.Beta.Sessions.New(ctx, anthropic.BetaSessionNewParams{
			Agent: anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(a.ID)}, EnvironmentID: p.env, Title: anthropic.String(title),
		}, under(p.Name)...)
	}
	s, err := create("once")
	if err != nil {
		return err
	}
	again, err := create("once")
	if err != nil {
		return err
	}
	_, other := create("twice")
	send := func(text string) (*anthropic.BetaManagedAgentsSendSessionEvents, error) {
		return p.client.Beta.Sessions.Events.Send(ctx, s.ID, anthropic.BetaSessionEventSendParams{
			Events: []anthropic.BetaManagedAgentsEventParamsUnion{say(text)},
		}, under(p.Name+"-message")...)
	}
	text := p.Script(rig.Say("Once."))
	sent, err := send(text)
	if err != nil {
		return err
	}
	resent, err := send(text)
	if err != nil {
		return err
	}
	_, changed := send("something else")
	if err := errors.Join(
		check(again.ID == s.ID, "one key made %s and %s", s.ID, again.ID), refused(other, "another session under the same key", http.StatusConflict),
		check(len(sent.Data) == 1 && len(resent.Data) == 1 && sent.Data[0].ID == resent.Data[0].ID, "one key sent %s and %s", sent.RawJSON(), resent.RawJSON()),
		refused(changed, "another message under the same key", http.StatusConflict),
	); err != nil {
		return err
	}
	if err := p.turn(ctx, s.ID); err != nil { // whatever was asked before is done by then
		return err
	}
	return errors.Join(p.once(ctx, s.ID, text), p.alone(ctx, a.ID))
}

// once checks that a message is in the history once, and was answered once.
func (p *player) once(ctx context.Context, session, text string) error {
	history, err := p.list(ctx, session, 1000)
	if err != nil {
		return err
	}
	asked, said := 0, 0
	for _, e := range history {
		switch e.Type {
		case "user.message":
			if e.AsUserMessage().Content[0].Text == text {
				asked++
			}
		case "agent.message":
			if e.AsAgentMessage().Content[0].Text == "Once." {
				said++
			}
		}
	}
	return check(asked == 1 && said == 1, "the message is there %d times, its answer %d times", asked, said)
}

// alone checks that an agent has one session.
func (p *player) alone(ctx context.Context, agent string) error {
	list, err := p.client.Beta.Sessions.List(ctx, anthropic.BetaSessionListParams{AgentID: anthropic.String(agent)})
	if err != nil {
		return err
	}
	return check(len(list.Data) == 1, "there are %d sessions", len(list.Data))
}

// lastEvent follows a session from its beginning, and another time from where it
// was left, without listing anything.
func lastEvent(ctx context.Context, p *player) error {
	s, err := p.session(ctx, toolset(false))
	if err != nil {
		return err
	}
	if err := p.send(ctx, s.ID, say(p.Script(rig.Bash("true"), rig.Bash("sleep 0.2"), rig.Say("There.")))); err != nil {
		return err
	}
	var seen stage.Reader
	last, ended := "0", false
	for !ended {
		if last, ended, err = p.goOn(ctx, s.ID, last, &seen); err != nil {
			return err
		}
	}
	history, err := p.list(ctx, s.ID, 1000)
	if err != nil {
		return err
	}
	foreign := p.client.Beta.Sessions.Events.StreamEvents(ctx, s.ID, anthropic.BetaSessionEventStreamParams{}, option.WithHeader("Last-Event-ID", "yesterday"))
	defer func() { _ = foreign.Close() }()
	return errors.Join(
		stage.Same("what was seen", seen.IDs, ids(history)),
		check(!foreign.Next(), "a stream goes on after an event of nobody's"), refused(foreign.Err(), "an event of nobody's", http.StatusBadRequest),
	)
}

// goOn takes three events behind the last one that was seen. Nothing may come a
// second time.
func (p *player) goOn(ctx context.Context, session, last string, seen *stage.Reader) (now string, ended bool, err error) {
	var noted notes
	stream := p.client.Beta.Sessions.Events.StreamEvents(ctx, session, anthropic.BetaSessionEventStreamParams{},
		option.WithHeader("Last-Event-ID", last), option.WithMiddleware(noted.watch))
	defer func() { _ = stream.Close() }()
	n, twice := 0, 0
	e, err := until(stream, "three events", func(e event) bool {
		if e.ProcessedAt.IsZero() {
			return false
		}
		if n++; !seen.Take(e.ID, true) {
			twice++
		}
		return n == 3 || idle("end_turn")(e)
	}, nil)
	if err := errors.Join(err, check(twice == 0, "%d events behind %s came again", twice, last)); err != nil {
		return "", false, err
	}
	return noted.of(e.ID), idle("end_turn")(e), nil
}

// notes keeps the ids that frames have beside those of their events. The SDK does
// not show them.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu; of the stream as far as it was read
}

// watch notes what an answer carries.
func (n *notes) watch(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(res.Body, n), res.Body}
	}
	return res, err
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

// of is the id of the frame that an event came in last.
func (n *notes) of(event string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := ""
	for frame := range strings.SplitSeq(n.text.String(), "\n\n") {
		id, rest, ok := strings.Cut(strings.TrimPrefix(frame, "id: "), "\n")
		if ok && strings.HasPrefix(frame, "id: ") && strings.Contains(rest, `"id":"`+event+`"`) {
			found = id
		}
	}
	return found
}
