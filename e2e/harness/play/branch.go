package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// fork starts a counter, has a branch go on with it, and looks at both.
func fork(ctx context.Context, p *Play) error {
	if err := p.startCounter(ctx); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	var branch struct {
		Session   dormouse.SessionID `json:"session"`
		Processes bool               `json:"processes"`
	}
	for {
		err := p.Repeat(ctx, http.MethodPost, p.Path("/branch"), map[string]any{"processes": true}, &branch)
		if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict { // what ran was lost: it is there again
			if err = p.look(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("branch: %w", err)
		}
		break
	}
	if !branch.Processes {
		return errors.New("a branch was made without what runs, and that was wanted")
	}
	if err := p.lookAt(ctx, branch.Session, p.looks[len(p.looks)-1].Count); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil { // its origin wakes too
		return err
	}
	err := p.Repeat(ctx, http.MethodDelete, "/api/sessions/"+string(branch.Session), nil, nil)
	if rig.Missing(err) {
		err = nil // it was deleted before the answer was lost
	}
	return err
}

// lookAt sees whether a branch counts on from where its origin was, or says that it
// does not.
func (p *Play) lookAt(ctx context.Context, id dormouse.SessionID, least int) error {
	var result rig.Exec
	const tries = 5
	for try := range tries {
		ask := map[string]any{"id": fmt.Sprint("look-", try), "command": look + "note-of-branch"}
		if err := p.Repeat(ctx, http.MethodPost, "/api/sessions/"+string(id)+"/execs", ask, &result); err != nil {
			return fmt.Errorf("look at the branch: %w", err)
		}
		if result.Ran() {
			break
		}
	}
	words := strings.Fields(result.Output)
	if !result.Ran() || len(words) == 0 {
		return fmt.Errorf("looking at the branch: %+v", result)
	}
	lost, err := p.lost(ctx, id)
	if err != nil {
		return err
	}
	switch n, err := strconv.Atoi(words[0]); {
	case err != nil || n < least:
		return fmt.Errorf("the branch has counted to %s, its origin had to %d", words[0], least)
	case !strings.Contains(result.Output, " ordered"):
		return fmt.Errorf("the branch counted what was counted, or left some out: %q", result.Output)
	case !strings.Contains(result.Output, " counts") && !lost:
		return fmt.Errorf("the branch counts no more, and nobody was told: %q", result.Output)
	}
	return nil
}

// lost reports whether the log of a session says that its processes were lost.
func (p *Play) lost(ctx context.Context, id dormouse.SessionID) (bool, error) {
	var page struct {
		Events []dormouse.Event `json:"events"`
	}
	if err := p.Get(ctx, "/api/sessions/"+string(id)+"/events?all=true&limit=1000", &page); err != nil {
		return false, fmt.Errorf("read the log of the branch: %w", err)
	}
	for _, e := range page.Events {
		var f dormouse.SandboxFact
		if e.Type == dormouse.SandboxStarted && json.Unmarshal(e.Payload, &f) == nil && f.Processes == dormouse.ProcessesLost || e.Type == dormouse.SandboxLost {
			return true, nil
		}
	}
	return false, nil
}
