package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newFollow() *cobra.Command {
	var o client.FollowOptions
	var untilIdle bool
	cmd := &cobra.Command{
		Use:   "follow SESSION",
		Short: "Show what happens in a session, live",
		Long: `Show a session's events from a cursor on, live. When the connection breaks, or
the server restarts, it goes on by itself with the next event: each is shown once.
It ends when the session is terminated, or, with --until-idle, as soon as nothing is
being worked on and nothing is queued.`,
		Example: `  dormouse session follow sesn_…
  dormouse session follow sesn_… --deltas
  dormouse session follow sesn_… --until-idle
  dormouse session follow sesn_… --json --after 120 | jq .type`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			p, session := newPrinter(cmd), dormouse.SessionID(args[0])
			if untilIdle {
				if rests, left, err := atRest(cmd.Context(), c, session, o.After); err != nil || rests && left == 0 {
					return err
				}
			}
			for e, err := range c.Follow(cmd.Context(), session, o) {
				if err != nil {
					return err
				}
				if err := p.print(e); err != nil {
					return err
				}
				switch e.Type { //nolint:exhaustive // the others end nothing
				case dormouse.SessionStatusIdle:
					if !untilIdle {
						continue
					}
					// A server that does not answer is asked again at the next rest.
					if rests, _, err := atRest(cmd.Context(), c, session, e.Seq); err == nil && rests {
						return nil
					}
				case dormouse.SessionStatusTerminated, dormouse.SessionDeleted:
					return nil
				}
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&o.After, "after", 0, "last `event` already seen")
	cmd.Flags().BoolVar(&o.Deltas, "deltas", false, "show text and output as it is made")
	cmd.Flags().BoolVar(&o.All, "all", false, "show the server's bookkeeping as well")
	cmd.Flags().BoolVar(&untilIdle, "until-idle", false, "end as soon as the session rests")
	return cmd
}

// atRest reports whether a session works on nothing and no turn of it began after
// cursor; left counts the events there are beyond it.
func atRest(ctx context.Context, c *client.Client, session dormouse.SessionID, cursor uint64) (rests bool, left int, err error) {
	s, err := c.Show(ctx, session)
	if err != nil || s.Queue > 0 || s.Status == dormouse.StatusRunning || s.Status == dormouse.StatusRescheduling {
		return false, 0, err
	}
	const enough = 100
	rests = true
	for e, err := range c.Events(ctx, session, client.EventOptions{After: cursor, Limit: enough}) {
		if err != nil {
			return false, 0, err
		}
		left++
		rests = rests && e.Type != dormouse.SessionStatusRunning
	}
	return rests, left, nil
}

// followTurn shows the turn that works on a prompt until its end. If a snapshot is taken
// of it, it returns once that is there, so that a revert undoes this turn.
func followTurn(cmd *cobra.Command, c *client.Client, session dormouse.SessionID, prompt client.Prompt) error {
	w := turnWatch{printer: newPrinter(cmd), session: session, prompt: prompt.ID}
	o := client.FollowOptions{Deltas: true, All: true}
	if prompt.Seq > 0 {
		o.After = prompt.Seq - 1
	}
	for e, err := range c.Follow(cmd.Context(), session, o) {
		if err != nil {
			return err
		}
		if e.Delta != nil || e.Type.Audience() != dormouse.ForCore {
			if err := w.print(e); err != nil {
				return err
			}
		}
		if done, err := w.see(e.Event); done || err != nil {
			return err
		}
	}
	return nil
}

// turnWatch waits for the end of the turn that works on a prompt.
type turnWatch struct {
	*printer
	session  dormouse.SessionID
	prompt   dormouse.EventID
	turn     dormouse.TurnID
	snapshot dormouse.SnapshotID // that is waited for
	ended    error               // how the turn did, if not well
}

// see reports whether an event is the last that is waited for. The error is that of the
// turn.
func (w *turnWatch) see(e dormouse.Event) (done bool, err error) {
	switch e.Type { //nolint:exhaustive // the others say nothing of the turn
	case dormouse.TurnStarted, dormouse.TurnEnded, dormouse.TurnBlocked, dormouse.PromptCancelled:
	case dormouse.SnapshotTaken, dormouse.SnapshotSkipped, dormouse.WorkspaceSwapped, dormouse.SessionTerminated, dormouse.SessionDeleted:
		if w.snapshot == "" {
			return false, nil
		}
	default:
		return false, nil
	}
	var said struct {
		Turn    dormouse.TurnID    `json:"turn"`
		Prompts []dormouse.EventID `json:"prompts"`
		Outcome string             `json:"outcome"`
		On      string             `json:"on"`
		// Snapshot is the one that will be taken of a turn that ended, or that was.
		Snapshot dormouse.SnapshotID `json:"snapshot"`
		Reason   string              `json:"reason"`
	}
	if err := json.Unmarshal(e.Payload, &said); err != nil && len(e.Payload) > 0 {
		return true, fmt.Errorf("understand event: %w", err)
	}
	mine := slices.Contains(said.Prompts, w.prompt)
	switch {
	case e.Type == dormouse.TurnStarted && mine:
		w.turn = said.Turn
	case e.Type == dormouse.PromptCancelled && mine:
		return true, fmt.Errorf("the prompt was cancelled")
	case e.Type == dormouse.TurnBlocked && said.Turn == w.turn:
		w.blocked(w.session, said.On)
	case e.Type == dormouse.TurnEnded && said.Turn == w.turn:
		if said.Outcome != dormouse.TurnCompleted {
			w.ended = fmt.Errorf("the turn was %s", said.Outcome)
		}
		w.snapshot = said.Snapshot
		return w.snapshot == "", w.ended
	case w.snapshot != "" && (e.Type == dormouse.SnapshotTaken || e.Type == dormouse.SnapshotSkipped):
		return said.Snapshot == w.snapshot, w.ended
	case w.snapshot != "" && e.Type == dormouse.WorkspaceSwapped: // other files: none will be taken of these
		return said.Reason != dormouse.SwapSealed, w.ended
	case e.Type == dormouse.SessionTerminated || e.Type == dormouse.SessionDeleted:
		return true, w.ended
	}
	return false, nil
}
