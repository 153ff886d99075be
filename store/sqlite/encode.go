package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// encoded is rows as they are stored, the columns of the index row in the
// groups in which they change.
type encoded struct {
	touched   touched
	moved     moved
	rewritten rewritten
	labels    labels
	ops       []string
	names     []string
}

// The groups can be compared, and become arguments only when they are written.
type (
	touched struct {
		seq, updated int64
		metrics      string
	}
	moved struct {
		title, phase, status string
		due                  driver.Value
	}
	rewritten struct {
		tenant, owner, parent string
		created               int64
		archived              driver.Value
		agent                 string
		agentVersion          int64
		environment           string
		needs                 int64
	}
	labels struct{ tags, metadata, search string }
)

func (t touched) args(to []driver.Value) []driver.Value {
	return append(to, t.seq, t.updated, t.metrics)
}

func (m moved) args(to []driver.Value) []driver.Value {
	return append(to, m.title, m.phase, m.status, m.due)
}

func (r rewritten) args(to []driver.Value) []driver.Value {
	return append(to, r.tenant, r.owner, r.parent, r.created, r.archived, r.agent, r.agentVersion, r.environment, r.needs)
}

// noLabels is what a session without a row of labels has.
var noLabels = labels{tags: "[]", metadata: "{}"}

// encode encodes rows, which may be nil.
func encode(r *dormouse.Rows) (e encoded, err error) {
	if r == nil {
		return e, nil
	}
	i := r.Session
	metrics, err := toJSON(i.Metrics)
	if err != nil {
		return e, err
	}
	e.touched = touched{signed(i.Seq), micros(i.Updated), metrics}
	e.moved = moved{i.Title, string(i.Phase), string(i.Status), nullableMicros(i.Due)}
	e.rewritten = rewritten{
		i.Tenant, string(i.Owner), string(i.Parent), micros(i.Created), nullableMicros(i.Archived),
		i.AgentID, int64(i.AgentVersion), i.EnvironmentID, int64(i.Needs),
	}
	e.labels = noLabels
	e.labels.search = i.Search
	if len(i.Tags) > 0 {
		if e.labels.tags, err = toJSON(i.Tags); err != nil {
			return e, err
		}
	}
	if len(i.Metadata) > 0 {
		if e.labels.metadata, err = toJSON(i.Metadata); err != nil {
			return e, err
		}
	}
	for _, o := range r.Ops {
		op, err := toJSON(o.Op)
		if err != nil {
			return e, err
		}
		e.ops = append(e.ops, op)
	}
	for _, n := range r.SnapshotBlobs {
		digests, err := toJSON(append([]dormouse.Digest{}, n.Digests...)) // a list, even of nothing
		if err != nil {
			return e, err
		}
		e.names = append(e.names, digests)
	}
	return e, nil
}

// toJSON is how what has no columns of its own is stored.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// signed is how a number of ours is stored; SQLite has no other integers.
func signed(n uint64) int64 {
	return int64(n) //nolint:gosec // what would wrap round is refused by the schema
}

func unsigned(n int64) uint64 {
	return uint64(n) //nolint:gosec // the schema keeps no negative number
}

// integer takes an integer out of an answer.
func integer(v driver.Value) (int64, error) {
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("an integer is stored as %T", v)
	}
	return n, nil
}

// micros is how a time is stored.
func micros(t time.Time) int64 { return t.UnixMicro() }

// nullableMicros stores the zero time as NULL.
func nullableMicros(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}
