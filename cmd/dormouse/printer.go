package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// printer shows events as they come: to people as a conversation, to programs as
// a line of JSON each.
type printer struct {
	out, errs io.Writer
	json      bool
	said      strings.Builder             // the reply so far, as deltas
	streamed  map[dormouse.EventID]string // the output so far, by tool call
	open      bool                        // the last line has no end yet
}

func newPrinter(cmd *cobra.Command) *printer {
	asJSON, _ := cmd.Flags().GetBool("json")
	return &printer{
		out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), json: asJSON,
		streamed: make(map[dormouse.EventID]string),
	}
}

func (p *printer) print(f frame) error {
	if p.json {
		_, err := fmt.Fprintf(p.out, "%s\n", f.Data)
		return err
	}
	if f.Event == "delta" {
		var d session.Delta
		if err := json.Unmarshal(f.Data, &d); err != nil {
			return fmt.Errorf("understand delta: %w", err)
		}
		return p.delta(d)
	}
	var e dormouse.Event
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return fmt.Errorf("understand event: %w", err)
	}
	return p.event(e)
}

func (p *printer) delta(d session.Delta) error {
	if d.Use != "" {
		p.streamed[d.Use] += d.Text
		p.output(d.Text)
		return nil
	}
	p.said.WriteString(d.Text)
	p.write(clean(d.Text))
	return nil
}

func (p *printer) event(e dormouse.Event) error {
	var payload struct {
		Content []dormouse.Block       `json:"content"`
		Name    string                 `json:"name"`
		Input   json.RawMessage        `json:"input"`
		Use     dormouse.EventID       `json:"tool_use_id"`
		IsError bool                   `json:"is_error"`
		Result  string                 `json:"result"`
		Reason  string                 `json:"reason"`
		Stop    dormouse.StopReason    `json:"stop_reason"`
		Error   dormouse.FailureDetail `json:"error"`
		Kind    dormouse.OpKind        `json:"kind"`
		Outcome string                 `json:"outcome"`
	}
	if len(e.Payload) > 0 {
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			return fmt.Errorf("understand event %d: %w", e.Seq, err)
		}
	}
	text := textOf(payload.Content)
	switch e.Type { //nolint:exhaustive // people are shown the conversation, not every fact
	case dormouse.UserMessage:
		p.line("> " + strings.ReplaceAll(text, "\n", "\n> "))
	case dormouse.AgentMessage:
		rest, seen := unsaid(text, p.said.String())
		if !seen { // a reply that was begun anew, or joined late
			p.endLine()
		}
		p.said.Reset()
		p.write(clean(rest))
		p.endLine()
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		p.line("● " + payload.Name + " " + describeInput(payload.Input))
	case dormouse.AgentToolResult:
		p.result(payload.Use, text, payload.IsError)
	case dormouse.UserInterrupt:
		p.line("— interrupted")
	case dormouse.UserToolConfirmation:
		p.line("— " + payload.Result)
	case dormouse.SessionError:
		p.line("! " + payload.Error.Message + " (" + payload.Error.RetryStatus.Type + ")")
	case dormouse.SessionStatusRescheduled:
		p.line("— taken up again after a stop")
	case dormouse.SessionStatusTerminated:
		p.line("— terminated")
	case dormouse.PromptCancelled:
		p.line("— cancelled from the queue: " + payload.Reason)
	case dormouse.OpUnknown:
		p.line("! the outcome of a " + string(payload.Kind) + " cannot be known: " + payload.Outcome)
	case dormouse.SandboxLost:
		p.line("! sandbox lost: " + payload.Reason)
	case dormouse.SandboxStarted, dormouse.SandboxStopped:
		p.line("— " + strings.ReplaceAll(string(e.Type), ".", " "))
	case dormouse.SessionStatusIdle:
		if payload.Stop.Type == dormouse.StopRequiresAction {
			for _, id := range payload.Stop.EventIDs {
				p.line("? waits for an answer to " + string(id))
			}
		}
	}
	return nil
}

func (p *printer) result(use dormouse.EventID, text string, failed bool) {
	seen := p.streamed[use]
	delete(p.streamed, use)
	p.endLine()
	if rest, ok := strings.CutPrefix(text, seen); ok {
		text = rest
	} else if seen != "" && !failed {
		return // it was shown while it was made
	}
	p.output(strings.TrimRight(text, "\n"))
	p.endLine()
}

// output writes what a tool printed, set off from what the agent says.
func (p *printer) output(s string) {
	for line := range strings.SplitAfterSeq(clean(s), "\n") {
		if !p.open && strings.TrimSpace(line) != "" {
			p.write("  ")
		}
		p.write(line)
	}
}

// blocked says what a turn waits for and how to answer.
func (p *printer) blocked(session, on string) {
	p.endLine()
	if on == dormouse.BlockedOnRecovery {
		fmt.Fprintf(p.errs, "The turn was stopped by a crash. Decide with:\n  dormouse session retry %s\n  dormouse session continue %s\n", session, session)
		return
	}
	fmt.Fprintf(p.errs, "The turn waits for an answer. See what for, and answer, with:\n  dormouse session show %s\n  dormouse session answer %s --allow\n", session, session)
}

func (p *printer) write(s string) {
	if s == "" {
		return
	}
	p.open = !strings.HasSuffix(s, "\n")
	_, _ = io.WriteString(p.out, s)
}

func (p *printer) endLine() {
	if p.open {
		p.write("\n")
	}
}

func (p *printer) line(s string) {
	p.endLine()
	p.write(clean(s) + "\n")
}

// unsaid is what follows in text after what was said of it. Blocks are set apart
// by line ends in one and by nothing in the other, so line ends do not count.
func unsaid(text, said string) (rest string, begins bool) {
	i := 0
	for j := 0; j < len(said); {
		switch {
		case said[j] == '\n':
			j++
		case i < len(text) && text[i] == '\n':
			i++
		case i < len(text) && text[i] == said[j]:
			i, j = i+1, j+1
		default:
			return text, false
		}
	}
	return text[i:], true
}

func textOf(content []dormouse.Block) string {
	var b strings.Builder
	for _, block := range content {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		if block.Type == "text" {
			b.WriteString(block.Text)
		} else {
			b.WriteString("[" + block.Type + "]")
		}
	}
	return b.String()
}

// describeInput is what a tool was asked, as briefly as it can be said.
func describeInput(raw json.RawMessage) string {
	var known struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	if json.Unmarshal(raw, &known) == nil {
		if known.Command != "" {
			return oneLine(known.Command)
		}
		if known.Path != "" {
			return oneLine(known.Path)
		}
	}
	return compactJSON(raw)
}
