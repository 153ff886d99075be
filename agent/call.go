package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/model"
)

// maxTokens bounds one reply.
const maxTokens = 16_384

func (t *turn) openModelCall() (dormouse.Op, bool) {
	for _, op := range t.view.Ops {
		if op.Kind == dormouse.OpModel {
			return op, true
		}
	}
	return dormouse.Op{}, false
}

// ask makes the next model call.
func (t *turn) ask(ctx context.Context) error {
	m, err := t.model()
	if err != nil {
		return err
	}
	req, op := t.request(), t.nextCall(m)
	crash.At(crash.OpStarting)
	if err := t.j.Start(ctx, op); err != nil {
		return err
	}
	crash.At(crash.OpStarted)
	return t.call(ctx, m, op, req, "")
}

// nextCall is the op of the next model call.
func (t *turn) nextCall(m model.Model) dormouse.Op {
	op := dormouse.Op{
		Kind: dormouse.OpModel, Args: t.callDigest(), Keyed: keyed(m),
		Origin: dormouse.Origin{Thread: t.view.Thread, Turn: t.view.Turn, Call: t.view.Calls + 1, Block: -1},
		Asks:   t.size,
	}
	if p, ok := t.models.(Priced); ok {
		op.Price = p.Price(t.view.Agent.Model).Nanos()
	}
	if t.view.Retry != "" {
		op.Origin.Call, op.Try, op.RetryOf = t.view.Calls, t.view.RetryTry+1, t.view.Retry
	}
	return op.Named(t.view.Session)
}

// callDigest identifies the request of a model call. The request is determined by the
// model and by the log up to its last event, so the digest is of these.
func (t *turn) callDigest() dormouse.Digest {
	var upto uint64
	if n := len(t.events); n > 0 {
		upto = t.events[n-1].Seq
	}
	return digest(struct {
		Model string `json:"model"`
		Upto  uint64 `json:"upto"`
	}{t.view.Agent.Model, upto})
}

// justStarted reports whether this attempt recorded op with the end of the last one, so
// that it was not sent before. It counts the op as sent.
func (t *turn) justStarted(op dormouse.Op) bool {
	if op.ID != t.next {
		return false
	}
	t.next = ""
	crash.At(crash.OpStarted)
	return true
}

// finish records the end of an op, and the start of the next one in the same commit.
func (t *turn) finish(ctx context.Context, f Finish, next *dormouse.Op) error {
	if next != nil {
		crash.At(crash.OpStarting)
	}
	begun, err := t.j.Finish(ctx, f, next)
	if err != nil {
		return err
	}
	crash.At(crash.OpFinished)
	if begun {
		t.next = next.ID
	}
	return nil
}

// resumeModelCall handles a call that is recorded as open. If this attempt has just
// recorded it, it is sent. If an earlier attempt recorded it, that may have sent it:
// a provider with idempotency keys is sent the request again under the same key;
// otherwise the text seen so far is kept, and the next step makes a call with retry_of.
func (t *turn) resumeModelCall(ctx context.Context, op dormouse.Op) error {
	m, err := t.model()
	if err != nil {
		return err
	}
	if t.justStarted(op) {
		return t.call(ctx, m, op, t.request(), "")
	}
	text, err := t.j.Seen(ctx, op.ID)
	if err != nil {
		return err
	}
	if op.Kind.Verdict(op.Keyed && keyed(m), true) == dormouse.VerdictResend {
		return t.call(ctx, m, op, t.request(), text)
	}
	return t.finishPartial(ctx, op, dormouse.OutcomeInterrupted, text, dormouse.ModelUsage{}) // the usage counted so far was lost with the earlier attempt
}

// finishPartial records a call without a complete reply. The text seen so far becomes
// one message, and its cost is recorded. A call that was refused before any text costs
// nothing.
func (t *turn) finishPartial(ctx context.Context, op dormouse.Op, outcome, seen string, counted dormouse.ModelUsage) error {
	f := Finish{Op: op.ID, Outcome: outcome}
	if outcome == dormouse.OutcomeInterrupted || seen != "" || counted != (dormouse.ModelUsage{}) {
		f.Usage, f.Estimated = op.Spent(seen, counted)
		f.Cost = op.Price.Micros(f.Usage)
	}
	if strings.TrimSpace(seen) != "" {
		e := event(op, 0, dormouse.AgentMessage, dormouse.Message{Content: []dormouse.Block{dormouse.Text(seen)}})
		f.Events, f.Partial = []dormouse.Event{e}, e.ID
	}
	_, err := t.j.Finish(ctx, f, nil)
	return err
}

// call sends one request and records its reply. seen is what an earlier attempt
// already recorded of the same reply.
func (t *turn) call(ctx context.Context, m model.Model, op dormouse.Op, req model.Request, seen string) error {
	var counted dormouse.ModelUsage
	req.Op, req.Counted = op.ID, func(u dormouse.ModelUsage) {
		counted = u
		t.j.Counted(op.ID, u)
	}
	w := newChunks(ctx, t.j, op.ID, seen)
	crash.At(crash.OpSent)
	reply, err := m.Reply(ctx, req, w.add)
	seen = w.close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return t.failCall(ctx, op, err, seen, counted)
	}
	crash.At(crash.OpResult)
	f := t.replyFinish(op, reply)
	if p, ok := t.models.(Priced); ok {
		f.Cost = p.Price(t.view.Agent.Model).Micros(f.Usage)
	}
	return t.finish(ctx, f, t.firstTool(f))
}

// firstTool is the op of the first tool call in a reply that can run at once. It is nil
// if no sandbox is running.
func (t *turn) firstTool(f Finish) *dormouse.Op {
	if t.view.Generation == 0 {
		return nil
	}
	for _, use := range f.Uses {
		if use.Gate != dormouse.GateNone {
			continue
		}
		for _, e := range f.Events {
			var asked dormouse.ToolUse
			if e.ID != use.ID || json.Unmarshal(e.Payload, &asked) != nil {
				continue
			}
			asks, err := t.tools.Call(t.view.Agent.Tools, asked.Name, asked.Input)
			if err != nil || asks.Action != nil {
				return nil
			}
			op := t.toolOp(use, asks.Call, t.view.Generation)
			return &op
		}
	}
	return nil
}

func (t *turn) failCall(ctx context.Context, op dormouse.Op, cause error, seen string, counted dormouse.ModelUsage) error {
	if err := t.finishPartial(ctx, op, dormouse.OutcomeError, seen, counted); err != nil {
		return err
	}
	e := model.AsError(cause)
	f := &Failure{Type: string(e.Kind), Final: !e.Retryable(), After: min(e.RetryAfter, maxRetryAfter), Err: cause}
	if f.Final {
		f.Type = string(model.RequestFailed)
	}
	if f.After == 0 {
		f.After = backoff(t.view.Attempt)
	}
	return f
}

// maxRetryAfter bounds the delay that a provider may ask for.
const maxRetryAfter = 10 * time.Minute

// backoff is the delay before the next attempt; it grows with each one.
func backoff(attempt int) time.Duration {
	return min(500*time.Millisecond<<min(attempt, 6), 30*time.Second)
}

// replyFinish turns a reply into events. A tool call with invalid input gets an error
// result at once; the others are left to be run or answered.
func (t *turn) replyFinish(op dormouse.Op, r model.Reply) Finish {
	f := Finish{Op: op.ID, Outcome: dormouse.OutcomeOK, Usage: r.Usage}
	var text []dormouse.Block
	var refused []dormouse.Event
	said := 0
	say := func() {
		if len(text) > 0 {
			f.Events = append(f.Events, event(op, said, dormouse.AgentMessage, dormouse.Message{Content: text}))
			text, said = nil, said+1
		}
	}
	if r.Thought {
		f.Events = append(f.Events, event(op, 0, dormouse.AgentThinking, struct{}{}))
	}
	for i, p := range r.Content {
		switch p.Type {
		case model.PartText:
			if s := dormouse.CleanText(p.Text); strings.TrimSpace(s) != "" {
				text = append(text, dormouse.Text(s))
			}
		case model.PartToolUse:
			say()
			e, use, err := t.toolUse(op, len(f.Events), p)
			f.Events = append(f.Events, e)
			if err != nil {
				result := dormouse.ToolResult{Use: e.ID, Content: []dormouse.Block{dormouse.Text(err.Error())}, IsError: true}
				refused = append(refused, event(op, i, dormouse.AgentToolResult, result))
				continue
			}
			use.ID, use.Call, use.Block = e.ID, op.Origin.Call, i
			f.Uses = append(f.Uses, use)
		}
	}
	say()
	f.Events = append(f.Events, refused...)
	if len(f.Uses) == 0 && len(refused) == 0 {
		f.Stop = model.StopEndTurn
		if r.StopReason == model.StopRefusal {
			f.Stop = model.StopRefusal
		}
	}
	return f
}

// toolUse returns the event of one tool call and what it waits for.
func (t *turn) toolUse(op dormouse.Op, n int, p model.Part) (dormouse.Event, dormouse.Use, error) {
	asked := dormouse.ToolUse{Name: dormouse.CleanText(p.Name), Input: object(p.Input)}
	for _, c := range t.view.Agent.CustomTools {
		if c.Name == asked.Name {
			return event(op, n, dormouse.AgentCustomToolUse, asked), dormouse.Use{Gate: dormouse.GateCustom}, nil
		}
	}
	asks, err := t.tools.Call(t.view.Agent.Tools, asked.Name, asked.Input)
	if err != nil {
		return event(op, n, dormouse.AgentToolUse, asked), dormouse.Use{}, err
	}
	var use dormouse.Use
	if q, ok := asks.Action.(tool.Question); ok { // a question needs no approval
		asked.Permission, asked.Evaluation = evaluate(dormouse.PermissionAllow, asks)
		use = dormouse.Use{Gate: dormouse.GateQuestion, Within: q.Within}
		return event(op, n, dormouse.AgentToolUse, asked), use, nil
	}
	for _, c := range t.view.Agent.Tools {
		if c.Name == asked.Name {
			asked.Permission, asked.Evaluation = evaluate(c.Permission, asks)
		}
	}
	if asked.Permission == dormouse.PermissionAsk {
		use.Gate = dormouse.GateAsk
	}
	return event(op, n, dormouse.AgentToolUse, asked), use, nil
}

// object returns a tool's input if it is a JSON object, else an empty object.
func object(raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) == nil && m != nil {
		return json.RawMessage(strings.ToValidUTF8(string(raw), "\uFFFD"))
	}
	return json.RawMessage("{}")
}

// event makes the n-th event of a type that an op produces. Its id is derived from the
// op, so that recording a reply is idempotent.
func event(op dormouse.Op, n int, typ dormouse.EventType, p any) dormouse.Event {
	return dormouse.Event{
		ID:   dormouse.Brought(op.ID, typ, n),
		Type: typ, Payload: dormouse.Encode(p),
	}
}

func (t *turn) model() (model.Model, error) {
	m, err := t.models.Model(t.view.Agent.Model)
	if err != nil {
		return nil, &Failure{Type: string(model.RequestFailed), Final: true, Err: err}
	}
	return m, nil
}

func (t *turn) request() model.Request {
	r := model.Request{
		Model: t.view.Agent.Model, Effort: t.view.Agent.Effort, System: t.view.Agent.System, MaxTokens: maxTokens,
		Messages: Transcript(t.events), Tools: t.tools.Specs(t.view.Agent),
	}
	t.size = r.Tokens()
	return r
}

func keyed(m model.Model) bool {
	k, ok := m.(model.Keyed)
	return ok && k.Keyed()
}

func digest(v any) dormouse.Digest { return dormouse.DigestOf(dormouse.Encode(v)) }

// chunks records the fragments of a running call. It combines fragments when the journal
// is slower than the model.
type chunks struct {
	stop context.CancelFunc
	more chan struct{}
	done chan struct{}

	before string // what an earlier attempt recorded of the same reply

	mu     sync.Mutex
	seen   strings.Builder // guarded by mu
	unsent strings.Builder // guarded by mu
	skip   int             // guarded by mu; bytes of the reply that are recorded already
	first  int             // guarded by mu; bytes of its first block, -1 until that is complete
	block  int             // guarded by mu
	err    error           // guarded by mu
}

func newChunks(ctx context.Context, j Journal, op dormouse.OpID, seen string) *chunks {
	ctx, stop := context.WithCancel(ctx)
	w := &chunks{stop: stop, more: make(chan struct{}, 1), done: make(chan struct{}), before: seen, skip: len(seen), first: -1}
	go w.write(ctx, j, op)
	return w
}

// chunkEvery is how long fragments are combined before they are recorded. A reply that
// is complete by then needs no chunks.
const chunkEvery = 3 * time.Millisecond

// add takes a fragment from the model.
func (w *chunks) add(d model.Delta) error {
	crash.At(crash.OpFirstByte)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	text := dormouse.CleanText(d.Text)
	if d.Index != w.block && w.seen.Len() > 0 {
		text = "\n\n" + text
		if w.first < 0 {
			w.first = w.seen.Len()
		}
	}
	w.block = d.Index
	w.seen.WriteString(text)
	known := min(w.skip, len(text))
	w.skip -= known
	if text = text[known:]; text == "" {
		return nil
	}
	w.unsent.WriteString(text)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return nil
}

// write records what was added. A chunk is numbered by its offset in the reply, so that
// an attempt that resumes the reply continues where the one before it stopped. Text that
// finds the disk full goes with the next chunk, so that the record has no gap.
func (w *chunks) write(ctx context.Context, j Journal, op dormouse.OpID) {
	defer close(w.done)
	text := ""
	for at := len(w.before); ; {
		select {
		case <-ctx.Done():
			return
		case <-w.more:
		}
		if sleep.For(ctx, chunkEvery) != nil {
			return
		}
		w.mu.Lock()
		text += w.unsent.String()
		w.unsent.Reset()
		first := len(text)
		if w.first >= 0 {
			first = min(max(w.first-at, 0), first)
		}
		w.mu.Unlock()
		if text == "" {
			continue
		}
		err := j.Chunk(ctx, op, at, text, first)
		switch {
		case err == nil:
			at, text = at+len(text), ""
			crash.At(crash.OpChunk)
		case !errors.Is(err, dormouse.ErrFull):
			w.mu.Lock()
			w.err = fmt.Errorf("record a fragment: %w", err)
			w.mu.Unlock()
			return
		}
	}
}

// close stops recording and returns all text seen, by this attempt or the earlier one,
// whichever saw more.
func (w *chunks) close() string {
	w.stop()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.before) > w.seen.Len() {
		return w.before
	}
	return w.seen.String()
}
