package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func newFollow() *cobra.Command {
	var o following
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
			p := newPrinter(cmd)
			if untilIdle {
				if rests, left, err := atRest(cmd, args[0], o.after); err != nil || rests && left == 0 {
					return err
				}
			}
			return follow(cmd, args[0], o, func(f frame) (done bool, err error) {
				if err := p.print(f); err != nil {
					return true, err
				}
				if untilIdle && f.Event == string(dormouse.SessionStatusIdle) {
					rests, _, err := atRest(cmd, args[0], f.Seq)
					return err == nil && rests, nil // a server that is away is asked again at the next rest
				}
				return f.Event == string(dormouse.SessionStatusTerminated) || f.Event == string(dormouse.SessionDeleted), nil
			})
		},
	}
	cmd.Flags().Uint64Var(&o.after, "after", 0, "last `event` already seen")
	cmd.Flags().BoolVar(&o.deltas, "deltas", false, "show text and output as it is made")
	cmd.Flags().BoolVar(&o.all, "all", false, "show the server's bookkeeping as well")
	cmd.Flags().BoolVar(&untilIdle, "until-idle", false, "end as soon as the session rests")
	return cmd
}

// atRest reports whether a session works on nothing and no turn of it began after
// cursor; left counts the events there are beyond it.
func atRest(cmd *cobra.Command, session string, cursor uint64) (rests bool, left int, err error) {
	c, err := connect(cmd)
	if err != nil {
		return false, 0, err
	}
	var s rest.Session
	if _, err := c.call(cmd.Context(), http.MethodGet, sessionPath(session), nil, &s); err != nil {
		return false, 0, err
	}
	if s.Queue > 0 || s.Status == dormouse.StatusRunning || s.Status == dormouse.StatusRescheduling {
		return false, 0, nil
	}
	var page struct {
		Events []dormouse.Event `json:"events"`
	}
	path := sessionPath(session, "events") + "?after=" + strconv.FormatUint(cursor, 10)
	if _, err := c.call(cmd.Context(), http.MethodGet, path, nil, &page); err != nil {
		return false, 0, err
	}
	rests = !slices.ContainsFunc(page.Events, func(e dormouse.Event) bool { return e.Type == dormouse.SessionStatusRunning })
	return rests, len(page.Events), nil
}

// followTurn shows the turn that works on a prompt, to its end, and returns once the
// snapshot of it is there if one is taken: what is reverted then is this turn.
func followTurn(cmd *cobra.Command, session string, prompt rest.Prompt) error {
	p := newPrinter(cmd)
	var turn dormouse.TurnID
	var ended error
	var snapshot dormouse.SnapshotID // that is waited for
	o := following{deltas: true, all: true}
	if prompt.Seq > 0 {
		o.after = prompt.Seq - 1
	}
	return follow(cmd, session, o, func(f frame) (bool, error) {
		t := dormouse.EventType(f.Event)
		if f.Event == "delta" || t.Audience() != dormouse.ForCore {
			if err := p.print(f); err != nil {
				return true, err
			}
		}
		var event struct {
			Payload struct {
				Turn    dormouse.TurnID    `json:"turn"`
				Prompts []dormouse.EventID `json:"prompts"`
				Outcome string             `json:"outcome"`
				On      string             `json:"on"`
				// Snapshot is the one that will be taken of a turn that ended, or that was.
				Snapshot dormouse.SnapshotID `json:"snapshot"`
				Reason   string              `json:"reason"`
			} `json:"payload"`
		}
		switch t { //nolint:exhaustive // the others say nothing of the turn
		case dormouse.TurnStarted, dormouse.TurnEnded, dormouse.TurnBlocked, dormouse.PromptCancelled:
		case dormouse.SnapshotTaken, dormouse.SnapshotSkipped, dormouse.WorkspaceSwapped, dormouse.SessionTerminated, dormouse.SessionDeleted:
			if snapshot == "" {
				return false, nil
			}
		default:
			return false, nil
		}
		if err := json.Unmarshal(f.Data, &event); err != nil {
			return true, fmt.Errorf("understand event: %w", err)
		}
		ours := slices.Contains(event.Payload.Prompts, prompt.ID)
		switch {
		case t == dormouse.TurnStarted && ours:
			turn = event.Payload.Turn
		case t == dormouse.PromptCancelled && ours:
			return true, fmt.Errorf("the prompt was cancelled")
		case t == dormouse.TurnBlocked && event.Payload.Turn == turn:
			p.blocked(session, event.Payload.On)
		case t == dormouse.TurnEnded && event.Payload.Turn == turn:
			if event.Payload.Outcome != dormouse.TurnCompleted {
				ended = fmt.Errorf("the turn was %s", event.Payload.Outcome)
			}
			snapshot = event.Payload.Snapshot
			return snapshot == "", ended
		case snapshot != "" && (t == dormouse.SnapshotTaken || t == dormouse.SnapshotSkipped):
			return event.Payload.Snapshot == snapshot, ended
		case snapshot != "" && t == dormouse.WorkspaceSwapped: // other files: none will be taken of these
			return event.Payload.Reason != dormouse.SwapSealed, ended
		case t == dormouse.SessionTerminated || t == dormouse.SessionDeleted:
			return true, ended
		}
		return false, nil
	})
}
