// Package offline is the model that sessions have until a model is configured: it needs no
// key and no network. Lines of a prompt that begin with $ are run in the sandbox;
// anything else is answered with how to get a real one.
package offline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

const (
	// maxCommands bounds the tool calls of one reply.
	maxCommands = 100
	// maxShown bounds what is repeated of a command.
	maxShown = 60
	tool     = "bash"

	advice = "No model is configured, so I can only run commands: begin a line with $ and it runs in the sandbox, for example\n\n" +
		"    $ ls -la\n\n" +
		"To talk to a model, name one in the server's configuration, or choose one for a session with --model. " +
		"`dormouse help models` lists what there is."
)

// Model runs commands and explains itself. Equal transcripts get equal replies.
type Model struct{}

// New returns the model.
func New() *Model { return &Model{} }

// Reply runs the commands of the last prompt, or reports how they went.
func (m *Model) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	if err := model.ValidateTranscript(r.Messages); err != nil {
		return model.Reply{}, &model.Error{Kind: model.Rejected, Err: err}
	}
	reply := answer(r)
	for i, p := range reply.Content {
		if p.Type != model.PartText {
			continue
		}
		for _, line := range strings.SplitAfter(p.Text, "\n") {
			if ctx.Err() != nil {
				return model.Reply{}, model.AsError(context.Cause(ctx))
			}
			if line == "" {
				continue
			}
			if err := delta(model.Delta{Index: i, Text: line}); err != nil {
				return model.Reply{}, model.AsError(fmt.Errorf("take a fragment: %w", err))
			}
		}
	}
	if ctx.Err() != nil {
		return model.Reply{}, model.AsError(context.Cause(ctx))
	}
	return reply, nil
}

func answer(r model.Request) model.Reply {
	prompt, since := model.LastPrompt(r.Messages)
	if report := outcomes(since); report != "" {
		return say(r, report)
	}
	commands := commandsOf(prompt)
	if len(commands) == 0 {
		return say(r, advice)
	}
	if !hasTool(r.Tools) {
		return say(r, "This agent has no "+tool+" tool, so the commands were not run.")
	}
	var reply model.Reply
	if n := len(commands) - maxCommands; n > 0 {
		commands = commands[:maxCommands]
		reply = say(r, fmt.Sprintf("Only the first %d commands are run; %d are left out.", maxCommands, n))
	}
	for i, c := range commands {
		reply.Content = append(reply.Content, model.Part{
			Type: model.PartToolUse, ID: idOf(r.Messages, i), Name: tool, Input: inputOf(c),
		})
	}
	reply.StopReason = model.StopToolUse
	reply.Usage = usage(r, reply.Content)
	return reply
}

// commandsOf returns the lines that begin with $, without it.
func commandsOf(prompt string) []string {
	var out []string
	for line := range strings.Lines(prompt) {
		if c, ok := strings.CutPrefix(line, "$"); ok && strings.TrimSpace(c) != "" {
			out = append(out, strings.TrimSpace(c))
		}
	}
	return out
}

// outcomes says in a line each how the commands went; empty when none was run.
func outcomes(since []model.Message) string {
	commands := make(map[string]string)
	var lines []string
	for _, m := range since {
		for _, p := range m.Content {
			switch p.Type {
			case model.PartToolUse:
				var input struct {
					Command string `json:"command"`
				}
				if json.Unmarshal(p.Input, &input) != nil || input.Command == "" {
					input.Command = p.Name
				}
				commands[p.ID] = input.Command
			case model.PartToolResult:
				lines = append(lines, "$ "+shorten(commands[p.Use])+": "+outcome(p))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// outcome is the remark in brackets that a failed call ends with, if it does.
func outcome(p model.Part) string {
	if !p.IsError {
		return "ok"
	}
	for _, part := range slices.Backward(p.Result) {
		text := strings.TrimSpace(part.Text)
		line := text[strings.LastIndex(text, "\n")+1:]
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			return shorten(strings.Trim(line, "[]"))
		}
	}
	return "failed"
}

func shorten(command string) string {
	if r := []rune(command); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return command
}

func say(r model.Request, text string) model.Reply {
	content := []model.Part{{Type: model.PartText, Text: text}}
	return model.Reply{Content: content, StopReason: model.StopEndTurn, Usage: usage(r, content)}
}

// usage counts four bytes as a token, so that meters move.
func usage(r model.Request, content []model.Part) dormouse.ModelUsage {
	size := func(parts []model.Part) (n int64) {
		for _, p := range parts {
			n += int64(len(p.Text) + len(p.Input))
			for _, q := range p.Result {
				n += int64(len(q.Text))
			}
		}
		return n
	}
	u := dormouse.ModelUsage{InputTokens: int64(len(r.System))/4 + 1, OutputTokens: size(content)/4 + 1}
	for _, m := range r.Messages {
		u.InputTokens += size(m.Content) / 4
	}
	return u
}

func hasTool(tools []model.Tool) bool {
	for _, t := range tools {
		if t.Name == tool {
			return true
		}
	}
	return false
}

func inputOf(command string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return b
}

// idOf names the nth tool call of the reply to a transcript: the same for the
// same transcript, and never again in a longer one.
func idOf(messages []model.Message, n int) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(messages); err != nil {
		panic(err) // a valid transcript always has a JSON form
	}
	return "toolu_" + hex.EncodeToString(h.Sum(nil)[:10]) + strconv.Itoa(n)
}
