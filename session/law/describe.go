package law

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// describe changes title, tags, metadata and agent. A value that stays the same is not
// recorded.
func (d *draft) describe(v Describe) error {
	metadata := maps.Clone(d.Metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	for k, value := range v.Metadata {
		if delete(metadata, k); value != nil {
			metadata[k] = *value
		}
	}
	said := dormouse.Description{Title: v.Title, Tags: v.Tags, Metadata: metadata}
	if err := said.Validate(); err != nil {
		return err
	}
	var update dormouse.Update
	if v.Title != nil && *v.Title != d.Title {
		update.Title = v.Title
	}
	if !maps.Equal(metadata, d.Metadata) {
		update.Metadata = metadata
	}
	if v.Agent != nil {
		switch {
		case d.Terminated != nil:
			return dormouse.ErrTerminated
		case d.engaged():
			return errRuns
		}
		if err := v.Agent.Validate(); err != nil {
			return err
		}
		d.add(dormouse.AgentConfigured, "", dormouse.AgentChange{Agent: *v.Agent})
		update.Agent = v.Agent.Shown
	}
	if update.Title != nil || update.Metadata != nil || update.Agent != nil {
		d.add(dormouse.SessionUpdated, "", update)
	}
	if v.Tags != nil {
		if tags := dormouse.CleanTags(*v.Tags); !slices.Equal(tags, d.Tags) {
			d.add(dormouse.SessionTagged, "", dormouse.Tagging{Tags: tags})
		}
	}
	return nil
}

// errRuns refuses what must not happen to a session at work.
var errRuns = fmt.Errorf("the session is running; interrupt it first: %w", dormouse.ErrConflict)

// archive ends a session and puts it away. Twice is once.
func (d *draft) archive() error {
	if !d.Archived.IsZero() {
		return nil
	}
	if d.engaged() {
		return errRuns
	}
	if err := d.terminate(Terminate{Reason: "archived"}); err != nil {
		return err
	}
	d.add(dormouse.SessionArchived, "", nil)
	return nil
}

// deleteSession ends a session for good. Its log is removed once its sandbox and its
// children are gone. It is idempotent.
func (d *draft) deleteSession(v Delete) error {
	if d.Deleted {
		return nil
	}
	if v.Resting && d.engaged() {
		return errRuns
	}
	if err := d.terminate(Terminate{Reason: "deleted"}); err != nil {
		return err
	}
	d.add(dormouse.SessionDeleted, "", nil)
	return nil
}

// MaxThreads bounds the threads of one session.
const MaxThreads = 25

// openThread adds a thread. Twice is once.
func (d *draft) openThread(v OpenThread) error {
	if err := v.Thread.Validate(); err != nil {
		return err
	}
	if d.Thread(v.Thread) != nil {
		return nil
	}
	if len(d.Threads) >= MaxThreads {
		return fmt.Errorf("a session has at most %d threads: %w", MaxThreads, dormouse.ErrConflict)
	}
	d.add(dormouse.SessionThreadCreated, "", dormouse.ThreadCreated{Thread: v.Thread, AgentName: d.Agent})
	return nil
}

// archiveThread ends a thread. Twice is once.
func (d *draft) archiveThread(v ArchiveThread) error {
	t, err := d.thread(v.Thread)
	if err != nil {
		return err
	}
	switch {
	case t.ID == dormouse.PrimaryThread(d.Session):
		return fmt.Errorf("the primary thread lasts as long as its session; archive that: %w", dormouse.ErrConflict)
	case !t.Archived.IsZero():
		return nil
	case t.Turn != nil && t.Turn.Blocked == "":
		return fmt.Errorf("thread %s is running; interrupt it first: %w", t.ID, dormouse.ErrConflict)
	}
	id, turn := t.ID, t.Turn
	if turn != nil {
		d.closeTurn(id, dormouse.TurnAbandoned)
	}
	d.flush(id, "archived")
	d.add(dormouse.ThreadArchived, id, nil)
	if turn != nil && turn.Blocked != dormouse.BlockedOnRecovery { // else it was told
		d.recordIdle(id, dormouse.StopReason{Type: dormouse.StopEndTurn})
	}
	d.record(dormouse.SessionThreadStatusTerminated, id, d.threadStatus(id, nil))
	return nil
}
