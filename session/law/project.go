package law

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Project folds events into s and lays out what changed as rows. In a rebuild that
// is the whole log; in service the same is done while deciding.
func Project(s State, events []dormouse.Event) (State, dormouse.Rows) {
	var rows dormouse.Rows
	for _, e := range events {
		before := s
		s = Apply(s, e)
		projectEvent(&rows, before, s, e)
	}
	Finish(&rows, s)
	return s, rows
}

// projectEvent lays out what one event changed. Only here are rows made of events.
func projectEvent(rows *dormouse.Rows, before, after State, e dormouse.Event) {
	giveID(rows, before, e)
	switch e.Type { //nolint:exhaustive // the other types change no row but the index
	case dormouse.PromptQueued:
		if t := after.Thread(e.Thread); t != nil && len(t.Queue) > 0 {
			rows.Prompts = putPrompt(rows.Prompts, t.Queue[len(t.Queue)-1])
		}
	case dormouse.TurnStarted:
		if t := after.Thread(e.Thread); t != nil && t.Turn != nil {
			for _, q := range t.Turn.Prompts {
				rows.Prompts = putPrompt(rows.Prompts, q)
			}
		}
	case dormouse.PromptCompleted, dormouse.PromptCancelled:
		status := dormouse.PromptIsCompleted
		if e.Type == dormouse.PromptCancelled {
			status = dormouse.PromptIsCancelled
		}
		for _, q := range promptsNamed(before, Payload[dormouse.Prompts](e).Prompts) {
			q.Status = status
			rows.Prompts = putPrompt(rows.Prompts, q)
		}
	case dormouse.OpStarted:
		p := Payload[dormouse.OpFact](e)
		rows.Ops = putOp(rows.Ops, dormouse.OpRecord{Op: p.Op, Status: dormouse.OpOpen, Started: e.Time})
	case dormouse.OpFinished, dormouse.OpUnknown:
		p := Payload[dormouse.OpEnd](e)
		if op, ok := before.Op(p.Op); ok {
			r := dormouse.OpRecord{Op: op.Op, Status: dormouse.OpDone, Outcome: p.Outcome, Started: op.Started, Finished: e.Time}
			if e.Type == dormouse.OpUnknown {
				r.Status = dormouse.OpLost
			}
			rows.Ops = putOp(rows.Ops, r)
		}
	case dormouse.SnapshotTaken, dormouse.SnapshotDeleted, dormouse.WorkspaceSwapped:
		nameBlobs(rows, e)
	}
}

// Merge adds what was laid out later.
func Merge(rows *dormouse.Rows, later dormouse.Rows) {
	for _, p := range later.Prompts {
		rows.Prompts = putPrompt(rows.Prompts, p)
	}
	for _, o := range later.Ops {
		rows.Ops = putOp(rows.Ops, o)
	}
	rows.SnapshotBlobs, rows.Released = append(rows.SnapshotBlobs, later.SnapshotBlobs...), append(rows.Released, later.Released...)
	rows.ClientIDs = append(rows.ClientIDs, later.ClientIDs...)
}

// Finish adds what follows from the state as a whole.
func Finish(rows *dormouse.Rows, s State) {
	rows.Session = Index(s)
}

// Index is the session's row among all sessions.
func Index(s State) dormouse.SessionRow {
	row := dormouse.SessionRow{
		Session: s.Session, Tenant: s.Tenant, Owner: s.Owner, Parent: s.Parent, Title: s.Title,
		AgentID: s.AgentID, AgentVersion: s.AgentVersion, EnvironmentID: s.EnvironmentID,
		Phase: PhaseOf(s), Status: StatusOf(s), Created: s.Created, Updated: s.Updated, Seq: s.Seq, Due: Alarm(s),
		Needs: s.Needs, Archived: s.Archived, Tags: s.Tags, Metadata: s.Metadata, Search: searchText(s),
		Metrics: dormouse.Metrics{
			ActiveSeconds: s.Active.Seconds(), Messages: s.Messages, ToolCalls: s.ToolCalls,
			ModelUsage: s.Usage, CostMicros: s.CostMicros,
		},
	}
	if Want(s).Busy() {
		row.Due = dormouse.DueNow
	}
	return row
}

// searchText is the text that a search goes through: title, tags and the like.
func searchText(s State) string {
	words := append([]string{s.Title, s.Agent}, s.Tags...)
	for _, k := range slices.Sorted(maps.Keys(s.Metadata)) {
		words = append(words, k, s.Metadata[k])
	}
	return strings.ToLower(strings.Join(words, "\n"))
}

func promptsNamed(s State, ids []dormouse.EventID) []dormouse.PromptRecord {
	var found []dormouse.PromptRecord
	for _, t := range s.Threads {
		held := [2][]dormouse.PromptRecord{t.Queue}
		if t.Turn != nil {
			held[1] = t.Turn.Prompts
		}
		for _, prompts := range held {
			for _, q := range prompts {
				if slices.Contains(ids, q.ID) {
					found = append(found, q)
				}
			}
		}
	}
	return found
}

func putPrompt(rows []dormouse.PromptRecord, r dormouse.PromptRecord) []dormouse.PromptRecord {
	if i := slices.IndexFunc(rows, named(r.ID)); i >= 0 {
		rows[i] = r
		return rows
	}
	return append(rows, r)
}

func putOp(rows []dormouse.OpRecord, r dormouse.OpRecord) []dormouse.OpRecord {
	if i := slices.IndexFunc(rows, func(o dormouse.OpRecord) bool { return o.ID == r.ID }); i >= 0 {
		rows[i] = r
		return rows
	}
	return append(rows, r)
}

// stateVersion names the encoding of a cached State. It rises whenever Apply
// would fold an old log differently.
//
// Servers of different versions may cache the folds of one session in turn. One of
// another stateVersion is not used, and is replaced by the next server that caches: that
// costs a replay and is never wrong. If the newer program has only new types of events,
// it keeps the stateVersion, and then both use what the other cached: of a log without
// such events it is the same fold, and of a log with them the older program makes none.
const stateVersion = 13

// CacheState encodes a fold for the store, after a checksum: a fold that was corrupted is
// not used.
func CacheState(s State) *dormouse.StateCache {
	raw := dormouse.Encode(s)
	data := binary.BigEndian.AppendUint32(make([]byte, 0, sumSize+len(raw)), crc32.Checksum(raw, castagnoli))
	return &dormouse.StateCache{Seq: s.Seq, Version: stateVersion, Data: append(data, raw...)}
}

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenState decodes a cached fold; one of another version is no fold at all.
func OpenState(c dormouse.StateCache) (State, error) {
	if c.Version != stateVersion || c.Seq == 0 {
		return State{}, nil
	}
	var s State
	if len(c.Data) < sumSize || binary.BigEndian.Uint32(c.Data) != crc32.Checksum(c.Data[sumSize:], castagnoli) {
		return State{}, errors.New("the cached state is not what was written")
	}
	if err := json.Unmarshal(c.Data[sumSize:], &s); err != nil {
		return State{}, fmt.Errorf("decode cached state: %w", err)
	}
	return s, nil
}

// Stamp is how the core writes times: UTC, to the microsecond, so that a
// database gives back what it was given.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
