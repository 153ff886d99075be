package dormouse

import (
	"slices"
	"time"
)

// Fence is the right to write a session under an epoch.
type Fence struct {
	Session SessionID
	Epoch   uint64
}

// Rows are the tables that are derived from a session's log. One function makes them,
// law.Project, for a live append and for a rebuild alike.
type Rows struct {
	Session       SessionRow
	Prompts       []PromptRecord  // inserted or replaced by id
	Ops           []OpRecord      // inserted or replaced by id, in the order of the log
	SnapshotBlobs []SnapshotBlobs // inserted or replaced by snapshot
	Released      []SnapshotID    // snapshots that need no blobs any more, applied after SnapshotBlobs; unknown ones are ignored
	ClientIDs     []ClientID      // inserted; unique within the session
}

// ClientID is an id that a client gave to what it asked of a session, and the
// event that it was given to. It makes the request idempotent for as long as the
// session is there.
type ClientID struct {
	ID  string
	Seq uint64
}

// SessionRow is the row of a session in the list of all sessions.
type SessionRow struct {
	Session SessionID `json:"session"`
	Tenant  string    `json:"tenant"`
	Owner   Actor     `json:"owner"`
	Parent  SessionID `json:"parent,omitempty"`
	Title   string    `json:"title,omitempty"`
	// AgentID, AgentVersion and EnvironmentID name what the session was made from in the
	// catalog, if it was.
	AgentID       string `json:"agent_id,omitempty"`
	AgentVersion  int    `json:"agent_version,omitempty"`
	EnvironmentID string `json:"environment_id,omitempty"`

	Phase   Phase     `json:"phase"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
	Seq     uint64    `json:"seq"`
	// Archived is when the session was put away; lists leave it out unless asked.
	Archived time.Time         `json:"archived_at,omitzero"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Metrics  Metrics           `json:"metrics"`
	// Search is the text that a query looks in, in lower case.
	Search string `json:"-"`
	// Due is when the session next wants to be loaded: the zero time means
	// never, DueNow means as soon as anyone can.
	Due time.Time `json:"due_at,omitzero"`
	// Needs is the least version of the log that a program must know to fold this one;
	// see LogVersion.
	Needs int `json:"-"`
	// Newer says why this program leaves the session to others, if it does. It is not
	// stored: it follows from Needs.
	Newer string `json:"newer,omitempty"`
	// Damage says why the session's log cannot be read, if it cannot. It does not
	// follow from the log, so rows say nothing of it: Mark sets it. It also says what of
	// this row cannot be read.
	Damage string `json:"damage,omitempty"`
	// CorruptColumns names the columns of this row that are not what was written, whose values
	// are empty here. It is not stored.
	CorruptColumns string `json:"-"`
}

// DueNow is the due time of a session that wants something already.
var DueNow = time.Unix(1, 0).UTC()

// StateCache is the folded state of a log up to Seq. Version names its encoding, which
// is package law's.
type StateCache struct {
	Seq     uint64
	Version int
	Data    []byte
}

// SnapshotBlobs are the blobs that a snapshot needs. The empty digest stands for none.
type SnapshotBlobs struct {
	Snapshot SnapshotID
	Digests  []Digest
}

// SnapshotBlobsAfter returns what snapshots need once r is applied to what they needed
// before.
func (r Rows) SnapshotBlobsAfter(before []SnapshotBlobs) []SnapshotBlobs {
	after := slices.Clone(before)
	release := func(id SnapshotID) {
		after = slices.DeleteFunc(after, func(b SnapshotBlobs) bool { return b.Snapshot == id })
	}
	for _, b := range r.SnapshotBlobs {
		release(b.Snapshot)
		after = append(after, b)
	}
	for _, id := range r.Released {
		release(id)
	}
	return after
}

// Arriving lays out a session whose log is not all there yet. It has no tenant and no phase
// and is never due: it is not listed, and no server runs it. A rebuild makes it a session
// when the last event is there.
func Arriving(id SessionID, created time.Time, last Event) *Rows {
	return &Rows{Session: SessionRow{Session: id, Created: created, Updated: last.Time, Seq: last.Seq}}
}

// Arriving reports whether the session's log is not all there yet: a session that
// was laid out from its log has a phase.
func (i SessionRow) Arriving() bool { return i.Phase == "" }
