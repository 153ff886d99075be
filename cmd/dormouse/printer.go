package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// printer prints events as they come: for people as a conversation, for programs as a
// line of JSON each.
type printer struct {
	out, errs io.Writer
	json      bool
	thread    dormouse.ThreadID                      // the one that has the floor
	said      map[dormouse.ThreadID]*strings.Builder // the reply so far, as deltas
	streamed  map[dormouse.EventID]string            // the output so far, by tool call
	muted     map[string]bool                        // calls that are shown whole, once they have ended
	open      bool                                   // the last line has no end yet
}

func newPrinter(cmd *cobra.Command) *printer {
	asJSON, _ := cmd.Flags().GetBool("json")
	return &printer{
		out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), json: asJSON,
		said: make(map[dormouse.ThreadID]*strings.Builder), streamed: make(map[dormouse.EventID]string), muted: make(map[string]bool),
	}
}

func (p *printer) print(e client.Event) error {
	switch {
	case p.json:
		_, err := fmt.Fprintf(p.out, "%s\n", e.Raw)
		return err
	case e.Delta != nil:
		p.delta(*e.Delta)
		return nil
	}
	return p.event(e.Event)
}

// delta shows a fragment as it comes. When several threads produce text at once, one of
// them is shown live; the text of the others is shown when it is complete.
func (p *printer) delta(d dormouse.Delta) {
	if d.Fetched != nil {
		return // the caller shows it
	}
	call := string(d.Op) + string(d.Use)
	if p.open && d.Thread != p.thread {
		p.muted[call] = true
	}
	if p.muted[call] {
		return
	}
	p.floor(d.Thread)
	if d.Use != "" {
		p.streamed[d.Use] += d.Text
		p.output(d.Text)
		return
	}
	p.reply(d.Thread).WriteString(d.Text)
	p.write(clean(d.Text))
}

func (p *printer) reply(thread dormouse.ThreadID) *strings.Builder {
	if p.said[thread] == nil {
		p.said[thread] = new(strings.Builder)
	}
	return p.said[thread]
}

// floor prints which thread is shown, when it is not the same as before.
func (p *printer) floor(thread dormouse.ThreadID) {
	if thread == "" || thread == p.thread {
		return
	}
	if p.thread != "" {
		p.line("— on " + string(thread))
	}
	p.thread = thread
}

func (p *printer) event(e dormouse.Event) error {
	line, err := inWords(e)
	if line != "" || err != nil {
		p.line(line)
		return err
	}
	var payload struct {
		Content []dormouse.Block    `json:"content"`
		Name    string              `json:"name"`
		Input   json.RawMessage     `json:"input"`
		Use     dormouse.EventID    `json:"tool_use_id"`
		IsError bool                `json:"is_error"`
		Stop    dormouse.StopReason `json:"stop_reason"`
	}
	if len(e.Payload) > 0 {
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			return fmt.Errorf("understand event %d: %w", e.Seq, err)
		}
	}
	text := textOf(payload.Content)
	switch e.Type { //nolint:exhaustive // people are shown the conversation, not every fact
	case dormouse.UserMessage:
		p.floor(e.Thread)
		p.line("> " + strings.ReplaceAll(text, "\n", "\n> "))
	case dormouse.AgentMessage:
		p.floor(e.Thread)
		rest, seen := unsaid(text, p.reply(e.Thread).String())
		if !seen { // a reply that was begun anew, or joined late
			p.endLine()
		}
		delete(p.said, e.Thread)
		p.write(clean(rest))
		p.endLine()
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		p.floor(e.Thread)
		p.line("● " + payload.Name + " " + describeInput(payload.Input))
	case dormouse.AgentToolResult:
		p.floor(e.Thread)
		p.result(payload.Use, text, payload.IsError)
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
func (p *printer) blocked(session dormouse.SessionID, on string) {
	p.endLine()
	if on == dormouse.BlockedOnRecovery {
		fmt.Fprintf(p.errs, "The turn was stopped by a crash. Decide with:\n  dormouse session retry %s\n  dormouse session continue %s\n", session, session)
		return
	}
	fmt.Fprintf(p.errs, "The turn waits for an answer. See what for, and answer, with:\n  dormouse session questions %s\n  dormouse session answer %s --allow (or --say, or --content)\n", session, session)
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

// unsaid returns the part of text that was not shown yet. Line ends are ignored: blocks
// are separated by them in one of the two and by nothing in the other.
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
		Command  string `json:"command"`
		Path     string `json:"file_path"`
		Question string `json:"question"`
		Prompt   string `json:"prompt"`
	}
	if json.Unmarshal(raw, &known) == nil {
		if what := cmp.Or(known.Command, known.Path, known.Question, known.Prompt); what != "" {
			return oneLine(what)
		}
	}
	return compactJSON(raw)
}
