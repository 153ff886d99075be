package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// spelled is rows as they are stored, the columns of the index row in the
// groups in which they change.
type spelled struct {
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

// unlabelled is what a session without a row of labels has.
var unlabelled = labels{tags: "[]", metadata: "{}"}

// spell spells rows, which may be nil.
func spell(r *dormouse.Rows) (sp spelled, err error) {
	if r == nil {
		return sp, nil
	}
	i := r.Session
	metrics, err := text(i.Metrics)
	if err != nil {
		return sp, err
	}
	sp.touched = touched{signed(i.Seq), micros(i.Updated), metrics}
	sp.moved = moved{i.Title, string(i.Phase), string(i.Status), maybe(i.Due)}
	sp.rewritten = rewritten{
		i.Tenant, string(i.Owner), string(i.Parent), micros(i.Created), maybe(i.Archived),
		i.AgentID, int64(i.AgentVersion), i.EnvironmentID, int64(i.Needs),
	}
	sp.labels = unlabelled
	sp.labels.search = i.Search
	if len(i.Tags) > 0 {
		if sp.labels.tags, err = text(i.Tags); err != nil {
			return sp, err
		}
	}
	if len(i.Metadata) > 0 {
		if sp.labels.metadata, err = text(i.Metadata); err != nil {
			return sp, err
		}
	}
	for _, o := range r.Ops {
		op, err := text(o.Op)
		if err != nil {
			return sp, err
		}
		sp.ops = append(sp.ops, op)
	}
	for _, n := range r.SnapshotBlobs {
		digests, err := text(append([]dormouse.Digest{}, n.Digests...)) // a list, even of nothing
		if err != nil {
			return sp, err
		}
		sp.names = append(sp.names, digests)
	}
	return sp, nil
}

// text is how what has no columns of its own is stored.
func text(v any) (string, error) {
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

// maybe stores the zero time as NULL.
func maybe(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}
