package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Wish is what a tool asks of the session itself.
//
//sumtype:decl
type Wish interface{ wish() }

// What becomes a fact of the session at once, together with the result.
type (
	// Question asks people; it may be answered within a time.
	Question struct{ Within time.Duration }
	// Schedule prompts the session later: after a while, or by a cron line.
	Schedule struct {
		After   time.Duration
		Cron    string
		Content []dormouse.Block
	}
	// Unschedule cancels a wake-up.
	Unschedule struct{ ID dormouse.WakeupID }
	// Wakeups lists what is scheduled.
	Wakeups struct{}
	// Spawn makes a child. No tools means those of the parent.
	Spawn struct {
		Title, System string
		Tools         *[]string
		Prompt        []dormouse.Block
	}
	// EndChild ends a child.
	EndChild struct{ Child dormouse.SessionID }
	// Restore goes on with the files of a snapshot. As a Branch it is called so.
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
	// Nothing is a call that was taken once and cannot be carried out any more, as
	// after an upgrade.
	Nothing struct{ Why string }
	// DeleteSnapshot removes a snapshot. One that is gone is removed.
	DeleteSnapshot struct {
		Ref   json.RawMessage
		Cross bool
	}
)

// What reaches another session, or takes long, and is an op.
type (
	// Snapshot makes a point of the workspace.
	Snapshot struct{}
	// Message sends a child a prompt.
	Message struct {
		Child   dormouse.SessionID
		Content []dormouse.Block
	}
	// Wait waits until a child has nothing to do, or the time is over.
	Wait struct {
		Child dormouse.SessionID
		For   time.Duration
	}
	// Look reads the last things a child said and did.
	Look struct {
		Child dormouse.SessionID
		Last  int
	}
)

func (Question) wish()       {}
func (Snapshot) wish()       {}
func (Restore) wish()        {}
func (Snapshots) wish()      {}
func (DeleteSnapshot) wish() {}
func (Nothing) wish()        {}
func (Schedule) wish()       {}
func (Unschedule) wish()     {}
func (Wakeups) wish()        {}
func (Spawn) wish()          {}
func (EndChild) wish()       {}
func (Message) wish()        {}
func (Wait) wish()           {}
func (Look) wish()           {}

// words makes the content of a prompt, and refuses an empty or too large one.
func words(field, text string) ([]dormouse.Block, error) {
	content := []dormouse.Block{dormouse.Text(text)}
	if err := dormouse.ValidateContent(content); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return content, nil
}

// seconds reads a number of seconds between 1 and most; 0 is the usual.
func seconds(field string, n int64, usual, most time.Duration) (time.Duration, error) {
	switch d := time.Duration(n) * time.Second; {
	case n == 0:
		return usual, nil
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
