package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Action is what a tool asks of its own session.
//
//sumtype:decl
type Action interface{ action() }

// Actions that are committed to the session at once, together with the result.
type (
	// Question asks people and expires after Within.
	Question struct{ Within time.Duration }
	// Schedule prompts the session later: after a delay, or by a cron line.
	Schedule struct {
		After   time.Duration
		Cron    string
		Content []dormouse.Block
	}
	// Unschedule cancels a wake-up.
	Unschedule struct{ ID dormouse.WakeupID }
	// Wakeups lists the scheduled wake-ups.
	Wakeups struct{}
	// Spawn starts a child. Without Tools it has those of the parent.
	Spawn struct {
		Title, System string
		Tools         *[]string
		Prompt        []dormouse.Block
	}
	// EndChild ends a child.
	EndChild struct{ Child dormouse.SessionID }
	// Restore restores the files of a snapshot. Branch is set if the model called it a
	// branch.
	Restore struct {
		Ref    json.RawMessage
		Branch bool
		Cross  bool // the snapshot may be another session's
	}
	// Snapshots lists those of the session, or of another that a ref names.
	Snapshots struct {
		Limit int
		Cross bool
	}
	// Nothing is a call that was accepted once and is invalid now, as after an upgrade.
	// Its result is the error Why.
	Nothing struct{ Why string }
	// DeleteSnapshot deletes a snapshot. It is idempotent.
	DeleteSnapshot struct {
		Ref   json.RawMessage
		Cross bool
	}
)

// Actions that concern another session, or take long, and are ops.
type (
	// Snapshot takes a snapshot of the workspace.
	Snapshot struct{}
	// Message sends a child a prompt.
	Message struct {
		Child   dormouse.SessionID
		Content []dormouse.Block
	}
	// Wait waits until a child is idle, or For has passed.
	Wait struct {
		Child dormouse.SessionID
		For   time.Duration
	}
	// Look reads the last entries of a child's transcript.
	Look struct {
		Child dormouse.SessionID
		Last  int
	}
)

func (Question) action()       {}
func (Snapshot) action()       {}
func (Restore) action()        {}
func (Snapshots) action()      {}
func (DeleteSnapshot) action() {}
func (Nothing) action()        {}
func (Schedule) action()       {}
func (Unschedule) action()     {}
func (Wakeups) action()        {}
func (Spawn) action()          {}
func (EndChild) action()       {}
func (Message) action()        {}
func (Wait) action()           {}
func (Look) action()           {}

// promptContent makes the content of a prompt and validates it.
func promptContent(field, text string) ([]dormouse.Block, error) {
	content := []dormouse.Block{dormouse.Text(text)}
	if err := dormouse.ValidateContent(content); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return content, nil
}

// seconds converts a number of seconds between 1 and most; 0 is the default.
func seconds(field string, n int64, otherwise, most time.Duration) (time.Duration, error) {
	switch d := time.Duration(n) * time.Second; {
	case n == 0:
		return otherwise, nil
	case n < 0 || n > int64(most/time.Second):
		return 0, fmt.Errorf("%s must be between 1 and %d", field, most/time.Second)
	default:
		return d, nil
	}
}

func childID(id dormouse.SessionID) error {
	if id.Validate() != nil {
		return errors.New("child must be the id that child_spawn returned")
	}
	return nil
}
