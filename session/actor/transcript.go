package actor

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// maxTranscript bounds the transcript that an actor holds in memory; a longer one is read
// from the log whenever it is needed.
const maxTranscript = 16 << 20

// transcript is a thread's conversation, kept while the actor is loaded so that a
// turn does not begin by reading all of history.
type transcript struct {
	events []agent.Entry
	upto   uint64 // every event up to this seq has been read
	size   int
}

// inTranscript reports whether the agent loop reads events of this type.
func inTranscript(t dormouse.EventType) bool {
	switch t { //nolint:exhaustive // the others say nothing to a model
	case dormouse.UserMessage, dormouse.SystemMessage, dormouse.AgentMessage, dormouse.AgentToolUse, dormouse.AgentCustomToolUse,
		dormouse.AgentToolResult, dormouse.UserCustomToolResult, dormouse.SpanModelRequestStart, dormouse.OpFinished,
		dormouse.SandboxStarted, dormouse.SandboxRelieved, dormouse.WorkspaceSwapped, dormouse.WorkspaceRecovered, dormouse.SnapshotTaken:
		return true
	}
	return false
}

func (c *transcript) add(thread dormouse.ThreadID, events []dormouse.Event) {
	for _, e := range events {
		c.upto = e.Seq
		if e.Type == dormouse.HistoryTruncated {
			c.truncate(law.Payload[dormouse.Truncation](e).To)
		}
		if (e.Thread == thread || e.Thread == "") && inTranscript(e.Type) {
			c.events = append(c.events, agent.Read(e))
			c.size += 2 * len(e.Payload) // as it was received, and as it was decoded
		}
	}
}

// after returns the conversation beyond a seq.
func (c *transcript) after(seq uint64) []agent.Entry { return slices.Clip(c.events[c.find(seq+1):]) }

// truncate removes what was said after a seq. Slices that were handed out before stay as
// they are.
func (c *transcript) truncate(to uint64) { c.events = slices.Clip(c.events[:c.find(to+1)]) }

// find is the place of the first event that has this seq or a later one.
func (c *transcript) find(seq uint64) int {
	i, _ := slices.BinarySearchFunc(c.events, seq, func(e agent.Entry, s uint64) int {
		if e.Seq < s {
			return -1
		}
		return 1
	})
	return i
}

// extendTranscripts adds what was just committed to the transcripts in memory.
func (a *Actor) extendTranscripts(events []dormouse.Event) {
	for thread, c := range a.transcripts {
		c.add(thread, events)
		if c.size > maxTranscript {
			delete(a.transcripts, thread)
		}
	}
}

// readTranscript reads a page of the log with the payloads that the agent loop reads.
func (a *Actor) readTranscript(ctx context.Context, after uint64) ([]dormouse.Event, error) {
	events, err := a.deps.Store.Read(ctx, a.id, after, history.Page)
	if err != nil {
		return nil, fmt.Errorf("read conversation of %s: %w", a.id, err)
	}
	for i, e := range events {
		if inTranscript(e.Type) {
			if events[i], err = a.log.InflateOrMark(ctx, a.id, e); err != nil {
				return nil, err
			}
		}
	}
	return events, nil
}

// History implements agent.Journal.
func (j *journal) History(ctx context.Context, after uint64) ([]agent.Entry, error) {
	var events []agent.Entry
	var upto uint64
	err := j.ask(ctx, func(context.Context, *law.Turn) error {
		if c := j.a.transcripts[j.thread]; c != nil {
			events, upto = c.after(after), c.upto
		}
		return nil
	})
	if err != nil || upto > 0 {
		return events, err
	}
	c := &transcript{upto: after}
	for {
		events, err := j.a.readTranscript(ctx, c.upto)
		if err != nil {
			return nil, err
		}
		c.add(j.thread, events)
		if len(events) < history.Page {
			break
		}
	}
	if after > 0 || c.size > maxTranscript {
		return c.events, nil
	}
	return c.events, j.ask(ctx, func(ctx context.Context, _ *law.Turn) error {
		rest, err := j.a.readTranscript(ctx, c.upto) // what was committed meanwhile
		if err != nil || len(rest) == history.Page {
			return err
		}
		kept := *c
		kept.add(j.thread, rest)
		kept.events = slices.Clip(kept.events)
		j.a.transcripts[j.thread] = &kept
		return nil
	})
}
