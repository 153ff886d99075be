package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/model"
)

// step is one reply of a script.
type step struct {
	// Thinking has the reply begin with a thought.
	Thinking bool `json:"thinking"`

	Text  string          `json:"text"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
	Tools []call          `json:"tools"`
	// StopReason replaces the one that follows from the content.
	StopReason string `json:"stop_reason"`

	DelayMS      int   `json:"delay_ms"`
	ChunkDelayMS int   `json:"chunk_delay_ms"`
	Chunks       int   `json:"chunks"`
	Stream       *bool `json:"stream"`

	// Error, Cut, Hang and Spoil are faults; Times bounds how often they strike.
	Error        int   `json:"error"`
	RetryAfterMS int   `json:"retry_after_ms"`
	Cut          *int  `json:"cut"`
	Hang         bool  `json:"hang"`
	Spoil        spoil `json:"spoil"`
	Times        int   `json:"times"`
}

// faulty reports whether something goes wrong at all.
func (s step) faulty() bool { return s.Error != 0 || s.Hang || s.Cut != nil || s.Spoil != "" }

type call struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

const (
	marker        = "SCRIPT["
	defaultChunks = 3
	maxEcho       = 200
)

// position is where a transcript stands in its script.
type position struct {
	prompt string
	step   step
	// number counts the replies since the prompt whose tool calls were answered.
	// It follows from the transcript alone, so that neither a retry nor a
	// restart, here or at the caller's, can lose the place.
	number int
}

func locate(messages []model.Message) (position, error) {
	prompt, since := model.LastPrompt(messages)
	pos := position{prompt: prompt}
	for _, m := range since {
		for _, p := range m.Content {
			if p.Type == model.PartToolResult {
				pos.number++
				break
			}
		}
	}
	steps, err := parse(prompt)
	switch {
	case err != nil:
		return position{}, err
	case steps == nil:
		pos.step = step{Text: echo(prompt)}
	case pos.number < len(steps):
		pos.step = steps[pos.number]
	default:
		pos.step = step{Text: "done"}
	}
	return pos, nil
}

// parse reads the script in a prompt; nil means there is none.
func parse(prompt string) ([]step, error) {
	i := strings.Index(prompt, marker)
	if i < 0 {
		return nil, nil
	}
	var steps []step
	if _, err := closedjson.DecodePrefix([]byte(prompt[i+len(marker)-1:]), &steps); err != nil {
		return nil, fmt.Errorf("read the script: %w: %w", err, dormouse.ErrInvalid)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the script has no steps: %w", dormouse.ErrInvalid)
	}
	for i, s := range steps {
		if err := s.validate(); err != nil {
			return nil, fmt.Errorf("step %d of the script: %w", i, err)
		}
	}
	return steps, nil
}

func (s step) validate() error {
	if s.Error != 0 && (s.Error < 400 || s.Error > 599) {
		return fmt.Errorf("error is %d; it must be a status from 400 to 599: %w", s.Error, dormouse.ErrInvalid)
	}
	if s.Spoil != "" && !slices.Contains(spoils(), s.Spoil) {
		return fmt.Errorf("spoil is %q; it must be one of %v: %w", s.Spoil, spoils(), dormouse.ErrInvalid)
	}
	if s.Tool == "" && s.Input != nil {
		return fmt.Errorf("input without a tool: %w", dormouse.ErrInvalid)
	}
	for _, c := range s.calls() {
		if c.Name == "" || !isObject(c.Input) {
			return fmt.Errorf("tool %q needs a name and an object as input: %w", c.Name, dormouse.ErrInvalid)
		}
	}
	return nil
}

// calls are the tool calls of a step, in order.
func (s step) calls() []call {
	var out []call
	if s.Tool != "" {
		out = append(out, call{s.Tool, s.Input})
	}
	out = append(out, s.Tools...)
	for i := range out {
		if len(out[i].Input) == 0 {
			out[i].Input = json.RawMessage("{}")
		}
	}
	return out
}

func echo(prompt string) string {
	prompt = strings.Join(strings.Fields(prompt), " ")
	if prompt == "" {
		return "You said nothing that I can read."
	}
	if r := []rune(prompt); len(r) > maxEcho {
		prompt = string(r[:maxEcho]) + "…"
	}
	return "You said: " + prompt
}

// performance says how one request is answered.
type performance struct {
	name      string // of the reply: the same request has the same
	reply     model.Reply
	fragments []model.Delta
	stream    bool
	// delay comes before the first byte, pause between fragments.
	delay, pause time.Duration
	// cut is the number of fragments after which the stream breaks; -1 is never.
	cut   int
	hang  bool
	spoil spoil
}

// smooth is p with its content, without delays and faults.
func (p performance) smooth() performance {
	p.delay, p.pause = 0, 0
	return p.sound()
}

// sound is p without its faults.
func (p performance) sound() performance {
	p.cut, p.hang, p.spoil = -1, false, ""
	return p
}

// broken is p where no stream can be spoiled: it breaks off at its end instead.
func (p performance) broken() performance {
	if p.spoil != "" {
		p.cut = len(p.fragments)
	}
	return p
}

// perform turns a position into an answer. The ids of its tool calls follow
// from the whole transcript: equal requests get equal ids, and no id comes back
// later in the same session.
func perform(r model.Request, pos position, request string) performance {
	s := pos.step
	p := performance{
		stream: s.Stream == nil || *s.Stream,
		delay:  time.Duration(s.DelayMS) * time.Millisecond,
		pause:  time.Duration(s.ChunkDelayMS) * time.Millisecond,
		cut:    -1,
		hang:   s.Hang,
		spoil:  s.Spoil,
		name:   request[:24],
	}
	if s.Cut != nil {
		p.cut = max(*s.Cut, 0)
	}
	calls := s.calls()
	text := s.Text
	if text == "" && len(calls) == 0 {
		text = "done"
	}
	if text != "" {
		p.reply.Content = append(p.reply.Content, model.Part{Type: model.PartText, Text: text})
	}
	for i, c := range calls {
		p.reply.Content = append(p.reply.Content, model.Part{
			Type: model.PartToolUse, Name: c.Name, Input: compact(c.Input),
			ID: "toolu_" + request[:20] + strconv.Itoa(i),
		})
	}
	p.reply.Thought = s.Thinking
	p.reply.StopReason = model.StopEndTurn
	if len(calls) > 0 {
		p.reply.StopReason = model.StopToolUse
	}
	if s.StopReason != "" {
		p.reply.StopReason = s.StopReason
	}
	p.reply.Usage = usage(r, p.reply)
	if p.stream && text != "" {
		n := s.Chunks
		if n <= 0 {
			n = max(defaultChunks, p.cut+1)
		}
		for _, f := range split(text, n) {
			p.fragments = append(p.fragments, model.Delta{Index: 0, Text: f})
		}
	}
	return p
}

// split cuts s into at most n fragments of about equal size, none empty.
func split(s string, n int) []string {
	r := []rune(s)
	n = max(1, min(n, len(r)))
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, string(r[i*len(r)/n:(i+1)*len(r)/n]))
	}
	return out
}

// usage counts four bytes as a token: wrong for every tokenizer, and the same
// on every machine.
func usage(r model.Request, reply model.Reply) dormouse.ModelUsage {
	return dormouse.ModelUsage{
		InputTokens:  int64(len(r.System)+size(r.Messages...))/4 + 1,
		OutputTokens: int64(size(model.Message{Content: reply.Content}))/4 + 1,
	}
}

// size is about how long messages are, which is all that tokens are worth here.
func size(messages ...model.Message) (n int) {
	for _, m := range messages {
		for _, p := range m.Content {
			n += len(p.Text) + len(p.Source) + len(p.Name) + len(p.Input) + size(model.Message{Content: p.Result})
		}
	}
	return n
}

// digestOf names a request by everything that is asked, and not by its sender.
func digestOf(r model.Request) string {
	sum := sha256.Sum256(encode([]any{r.Model, r.System, r.Messages, r.Tools, r.MaxTokens}))
	return hex.EncodeToString(sum[:])
}

// encode is JSON without a failure: raw fields that are not JSON count as text.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Appendf(nil, "%+v", v)
	}
	return b
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
